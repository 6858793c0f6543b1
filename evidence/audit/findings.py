"""The findings of the audit: one per cause, with every stage that it concerns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ground.io import DataError

Level = Literal["error", "note"]
_NAMED = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference (``error``), or a claim that cannot be verified on this machine (``note``).

    Findings with the same ``where`` and ``cause`` (default: the message) are one: the lowest ``rank`` has the message.
    ``about`` is the path that the finding explains, if ``where`` is another file.
    """

    where: str
    message: str
    level: Level = "error"
    stages: tuple[str, ...] = ()
    cause: str = ""
    rank: int = 1
    about: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.where}: {self.message}{f' ({listed(self.stages)})' if self.stages else ''}"

    @classmethod
    def of(cls, error: DataError, where: str = "") -> Finding:
        """The finding about a file that cannot be read; without ``where``, the error names the place first."""
        place, _, message = str(error).partition(": ")
        return cls(where or place, str(error).removeprefix(f"{where}: ") if where else message)

    @property
    def subject(self) -> str:
        """The path that the finding explains."""
        return self.about or self.where


def listed(names: Iterable[str], shown: int = _NAMED) -> str:
    """The names, or the first ``shown`` and the number of the rest."""
    names = list(names)
    if len(names) <= shown + 1:
        return ", ".join(names)
    return f"{', '.join(names[:shown])} and {len(names) - shown} more"


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """One finding per cause, in the order of their first occurrence; an error outweighs a note."""
    found: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.where, finding.cause or finding.message)
        if (other := found.get(key)) is None:
            found[key] = finding
            continue
        first = min(other, finding, key=lambda each: (each.level != "error", each.rank))
        stages = tuple(dict.fromkeys(other.stages + finding.stages))
        found[key] = replace(first, stages=stages, level="error" if "error" in (other.level, finding.level) else "note")
    return list(found.values())
