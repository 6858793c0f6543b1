"""How long ``down`` takes over a large history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from pathfinder.reporting.index import schema
from tests.support.large_index import write_large_index


@pytest.mark.benchmarks
@pytest.mark.slow
def test_down_over_a_large_history(tmp_path: Path, root: Path) -> None:
    """Print how long ``down`` takes, by the size of the index (``PATHFINDER_RECORDS``, a million by default)."""
    records = int(os.environ.get("PATHFINDER_RECORDS", 1_000_000))
    runs, used = max(10, records * 247 // 10_000_000), records // 20
    write_large_index(tmp_path, records, runs, used)
    content = pl.read_parquet(tmp_path / schema.INDEX / "lines.parquet")["content"][used // 20]
    print(f"\n{records:,} records, {runs} runs of {used:,} records (4 stages each)")
    for selector in ("licence:MIT", "rater:rater-7", f"prm800k-01234567-{used // 20}-3-0", content):
        command = [sys.executable, "-m", "pathfinder", "lineage", "down", selector, "--json"]
        start, before = time.perf_counter(), os.times()
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, check=True
        )
        wall, after = time.perf_counter() - start, os.times()
        busy = after.children_user + after.children_system - before.children_user - before.children_system
        assert len(json.loads(done.stdout)["runs"]) == runs
        print(f"down {selector:40} {wall:5.2f} s, {busy:5.2f} s of CPU")
