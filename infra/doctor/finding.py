"""One line of the doctor's result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


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


LIMIT_S = 30.0
"""Heartbeats and leases are seconds apart; S3 refuses signatures that are 15 minutes off."""


def clock(who: str, date: str | None) -> Finding:
    """Compare the ``Date`` header of a new HTTP answer with this machine's clock."""
    if date is None:
        return Finding("clock", f"the {who} does not send its time")
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    found = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the {who}"
    return Finding("clock", found, "" if abs(ahead) <= LIMIT_S else "set both clocks: timedatectl set-ntp true")
