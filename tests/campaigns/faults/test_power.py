"""No finished file depends on memory: the order of every writer's system calls survives a loss of power."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.faults.power import losses
from tests.campaigns.faults.shim.forks import Forks
from tests.campaigns.faults.syscalls import TASKS
from tests.campaigns.faults.test_syscalls import needs_shim

THREADS = ("log", "checkpoints")
"""The writers with several threads: calls of another thread can come between a name and the sync of its folder."""
SLOW = ("checkpoints",)
"""The writers that only ``make faults`` tries."""


@needs_shim
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.faults] * (name in SLOW)) for name in TASKS])
def test_every_writer_waits_for_the_disk_before_and_after_a_name_appears(name: str, tmp_path: Path) -> None:
    with Forks([TASKS[name]]) as forks:
        assert forks.run(f"{TASKS[name]}:{name}_before", tmp_path, armed=False).status == 0
        run = forks.run(f"{TASKS[name]}:{name}", tmp_path, listed=True)
    assert run.status == 0
    assert any(call.startswith(("rename", "link")) for call in run.calls)
    calls = [call for call in run.calls if "/probe/" not in call]  # all but one of a race rename nothing
    assert losses(calls, name in THREADS) == []


def test_a_missing_or_late_sync_is_found() -> None:
    good = ["open .a.part", "write .a.part", "fsync .a.part", "rename a\t.a.part", "fsync "]
    assert losses(good) == []
    assert losses(good[:2] + good[3:]) == ["a: .a.part not synced before it got its name"]
    assert losses(good[:-1]) == ["a: its folder is not synced after it got its name", ".: not synced at the end"]
    assert losses([*good[:4], "write b", "fsync b", "fsync "]) == ["a: its folder is not synced after it got its name"]
    assert losses([*good[:4], "write b", "fsync b", "fsync "], threads=True) == []
    assert losses([*good[:3], "chmod .a.part", *good[3:]]) == ["a: .a.part not synced before it got its name"]
    folder = ["mkdir .f.part", "open .f.part/a", "write .f.part/a", "fsync .f.part/a", "rename f\t.f.part", "fsync "]
    assert losses(folder) == ["f: .f.part not synced before it got its name"]
    assert losses(["open journal", "fsync ", "write journal"]) == ["journal: not synced at the end"]
