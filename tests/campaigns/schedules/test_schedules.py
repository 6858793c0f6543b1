"""As many random schedules as ten minutes allow; `python -m tests.campaigns.schedules` runs a hundred."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.campaigns.schedules.__main__ import schedules

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount the full disk"),
]


def test_nothing_is_computed_twice_at_once_and_no_untrusted_result_is_taken(tmp_path: Path) -> None:
    rows = schedules(100, tmp_path / "rows.jsonl", 10.0)
    assert len(rows) >= 2
    assert [row for row in rows if row["wrong"]] == []
