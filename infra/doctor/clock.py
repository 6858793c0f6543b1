"""This machine's clock, compared with a server's clock: a store refuses requests whose times are minutes off."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from infra.doctor.finding import Finding

LIMIT_S = 30.0
"""Heartbeats and leases are seconds apart; S3 refuses signatures that are 15 minutes off."""


def clock(who: str, date: str | None) -> Finding:
    """Compare the ``Date`` header of an HTTP answer that has just arrived with this machine's clock."""
    if date is None:
        return Finding("clock", f"the {who} does not send its time")
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    found = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the {who}"
    return Finding("clock", found, "" if abs(ahead) <= LIMIT_S else "set both clocks: timedatectl set-ntp true")
