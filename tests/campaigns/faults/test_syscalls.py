"""One fault at one system call: a sample in every test run; every call and the game day in `make faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.faults.campaign import Trial, applies, differing, digests, table
from tests.campaigns.faults.shim import library
from tests.campaigns.faults.shim.forks import Fault, Forks
from tests.campaigns.faults.syscalls import campaign

needs_shim = pytest.mark.skipif(bool(library.missing()), reason=library.missing() or "available")
WRITER = "tests.campaigns.faults.shim.tasks:journal"


@needs_shim
def test_the_named_call_is_disturbed_and_no_other(tmp_path: Path) -> None:
    with Forks(["tests.campaigns.faults.shim.tasks"]) as forks:
        calls = forks.run(WRITER, tmp_path, listed=True).calls
        at = calls.index("fsync journal.jsonl") + 1
        expected = digests(tmp_path)
        for path in tmp_path.iterdir():
            path.unlink()
        failed = forks.run(WRITER, tmp_path, fault=Fault(at, "bad disk"))
        assert (failed.status, failed.hit, failed.call) == (1, True, "fsync journal.jsonl")
        assert "Input/output error" in failed.output
        killed = forks.run(WRITER, tmp_path, fault=Fault(1, "killed before"))
        assert killed.status == -9
        assert forks.run(WRITER, tmp_path).status == 0
    assert digests(tmp_path) == expected


@needs_shim
def test_a_table_that_cannot_be_closed_is_named_with_the_cause(tmp_path: Path) -> None:
    work = "tests.campaigns.faults.shim.tasks:files"
    with Forks(["tests.campaigns.faults.shim.tasks"]) as forks:
        forks.run(work, tmp_path, armed=False)  # a run that replaces files makes other calls than the first one
        calls = forks.run(work, tmp_path, listed=True).calls
        closes = [at for at, call in enumerate(calls, start=1) if call.startswith("close .rows.parquet")]
        for at in closes:
            failed = forks.run(work, tmp_path, fault=Fault(at, "bad disk"))
            assert failed.status == 1
            assert "rows.parquet: Input/output error" in failed.output
            assert "Traceback" not in failed.output
    assert closes


@needs_shim
def test_every_writer_survives_a_sample_of_faults() -> None:
    trials = campaign(["files", "journal", "store", "parts"], 10, seed=18)
    assert len(trials) == 40
    assert [trial for trial in trials if trial.problems] == []
    assert all(trial.hit for trial in trials)


def test_a_run_that_leaves_other_bytes_is_wrong() -> None:
    assert differing({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["extra: c", "other bytes: b"]
    assert differing({"a": "1"}, {}) == ["missing: a"]
    wrong = Trial("files", Fault(1, "bad disk"), hit=True, problems=["other bytes: b"])
    killed = Trial("files", Fault(1, "killed before"), status=-9, hit=True)
    not_reached = Trial("files", Fault(99, "bad disk"))
    assert table([wrong, killed, not_reached]).splitlines()[2:] == [
        "| bad disk | 1 | 0 | 0 | 0 | 1 |",
        "| killed before | 1 | 0 | 0 | 1 | 0 |",
        "| all | 2 | 0 | 0 | 1 | 1 |",
    ]


def test_only_a_write_is_short_and_deleting_needs_no_space() -> None:
    assert applies("short write", "write a")
    assert not applies("short write", "rename a")
    assert not applies("no space", "unlink a")
