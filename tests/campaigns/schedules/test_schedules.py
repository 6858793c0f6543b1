"""Random schedules for ten minutes, with and without a pool; `python -m tests.campaigns.schedules` runs a hundred."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.campaigns.schedules.__main__ import schedules

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount the full disk"),
]


@pytest.mark.parametrize("pools", [False, True])
def test_nothing_is_computed_twice_at_once_and_no_untrusted_result_is_taken(tmp_path: Path, pools: bool) -> None:
    rows = schedules(100, tmp_path / "rows.jsonl", 10.0, pools)
    assert len(rows) >= 2
    assert [row for row in rows if row["wrong"]] == []
