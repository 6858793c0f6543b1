"""One line of the doctor's result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, what was found, and what to do; ``remedy`` is "" if nothing is wrong."""

    what: str
    found: str
    remedy: str = ""
    optional: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether the set-up does not work until someone follows the remedy."""
        return bool(self.remedy) and not self.optional

    def line(self) -> str:
        """The finding with its remedy."""
        state = f"{'not installed' if self.optional else 'WRONG'}; {self.remedy}" if self.remedy else "ok"
        return f"{self.what:<11}{self.found}: {state}"
