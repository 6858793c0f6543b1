"""One line of the doctor's result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A check, its result and its remedy; ``remedy`` is "" if nothing is wrong."""

    what: str
    found: str
    remedy: str = ""
    optional: bool = False

    @property
    def is_wrong(self) -> bool:
        """True if the set-up does not work until someone follows the remedy."""
        return bool(self.remedy) and not self.optional

    def line(self) -> str:
        """The finding with its remedy."""
        state = f"{'not installed' if self.optional else 'WRONG'}; {self.remedy}" if self.remedy else "ok"
        return f"{self.what:<11}{self.found}: {state}"
