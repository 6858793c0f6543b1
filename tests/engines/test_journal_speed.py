"""The journal compared with one fsync per line and with a plain re-read, in one run on one machine.

Run: pytest -m benchmarks -s tests/engines/test_journal_speed.py
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from pathfinder.engines.journal import Journal

pytestmark = pytest.mark.benchmarks
_ENTRIES = int(os.environ.get("PATHFINDER_JOURNAL_ENTRIES", "500000"))
_ANSWER = "Reasoning: the step repeats an earlier step, and adds nothing new.\n" * 8
_ANSWER += "Final answers:\nScore A: 1\nScore B: 1\nScore C: 0"


def entry(number: int) -> tuple[str, dict[str, Any]]:
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    return f"{digest}:0", {"text": f"{number} {_ANSWER}", "tokens": 140, "finish": "stop"}


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_appends_and_resume(tmp_path: Path) -> None:
    single = max(_ENTRIES // 500, 200)
    with (tmp_path / "single").open("ab") as lines:
        start = time.perf_counter()
        for number in range(single):
            key, value = entry(number)
            lines.write(json.dumps({"key": key, "value": value}).encode() + b"\n")
            lines.flush()
            os.fsync(lines.fileno())
        each = single / (time.perf_counter() - start)

    path, before = tmp_path / "journal.jsonl", resident_mib()
    with Journal(path) as journal:
        start = time.perf_counter()
        slowest = float("inf")
        for tenth in range(10):
            began = time.perf_counter()
            for number in range(tenth * _ENTRIES // 10, (tenth + 1) * _ENTRIES // 10):
                journal.write(*entry(number))
            slowest = min(slowest, _ENTRIES / 10 / (time.perf_counter() - began))
        journal.sync()
        batched = _ENTRIES / (time.perf_counter() - start)
        grown = resident_mib() - before
    size = path.stat().st_size
    print(
        f"\nappend {_ENTRIES:,} entries of {size / _ENTRIES:.0f} bytes: {batched:,.0f}/s, "
        f"slowest tenth {slowest:,.0f}/s; one fsync per line {each:,.0f}/s; ratio {batched / each:.1f}; "
        f"memory {grown:+.0f} MiB"
    )

    start = time.perf_counter()
    with Journal(path) as journal:
        resumed = time.perf_counter() - start
        assert len(journal) == _ENTRIES
        assert journal[entry(7)[0]] == entry(7)[1]
    start = time.perf_counter()
    with path.open("rb") as handle:
        plain = {row["key"]: row["value"] for row in map(json.loads, handle)}
    read = time.perf_counter() - start
    assert len(plain) == _ENTRIES
    print(
        f"resume over {_ENTRIES:,} entries ({size / 2**20:.0f} MiB): {resumed:.2f} s; "
        f"plain JSON re-read {read:.2f} s; ratio {read / resumed:.2f}"
    )
