"""A record names everything that a stage's processes used, however they end; ``check`` finds the rest."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evidence.record.identity import PROJECT
from evidence.record.reading import read_records
from evidence.record.record import recorded
from evidence.verbs.check import check
from pathfinder.benchmarks.grading import Grader
from pathfinder.engines.journal import Journal
from pathfinder.engines.workers import Chunk, OnDone, Work, Workers, cut

COMMAND = "python -m stages.train full"
JOURNAL = ".pathfinder/search/0/draws.jsonl"


@dataclass(frozen=True)
class Draws:
    """Writes one journal entry per chunk, in the worker."""

    @contextmanager
    def __call__(self) -> Iterator[Work]:
        def work(chunk: Chunk, _: OnDone) -> int:
            with Journal(Path(JOURNAL).with_name(f"{chunk.name}.jsonl")) as journal:
                journal.append({chunk.name: "drawn"})
            return os.getpid()

        yield work


def python(project: Path, code: str, **variables: str) -> int:
    """The exit status of Python with this code, in the project."""
    environment = {**os.environ, "PYTHONPATH": str(project), **variables}
    return subprocess.run([sys.executable, "-c", code], cwd=project, env=environment, check=False).returncode


def newest(project: Path) -> dict[str, Any]:
    """The record written last."""
    folder = project / ".pathfinder/lineage/train@full"
    path = max(folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    return next(record.content for record in read_records(project, "train@full") if record.path == path)


def test_a_planted_module_that_only_a_killed_child_loads_is_found(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "polars.py").write_text("planted = True\n")
    code = (
        "from evidence.record.processes import report_as; report_as('worker')\n"
        "import polars, os, signal; assert polars.planted; os.kill(os.getpid(), signal.SIGKILL)"
    )
    with recorded(COMMAND):
        assert python(project, code) == -signal.SIGKILL
    record = newest(project)
    digest = hashlib.sha256(b"planted = True\n").hexdigest()
    assert record["unlisted_modules"]["polars (polars.py) in worker"] == digest
    assert record["processes"] == {"worker": 1}
    assert not [name for name in record["unlisted_modules"] if "provenance" in name and name.endswith("in worker")]
    found = [finding.subject for finding in check(root=project).errors]
    assert "polars (polars.py) in worker" in found


def test_a_child_with_other_code_than_the_record_is_found(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    code = "from evidence.record.processes import report_as; report_as('worker'); import pathfinder.mixing.mix"
    with recorded(COMMAND):
        assert python(project, code) == 0
        assert newest(project)["processes"] == {}
        mix = project / "pathfinder/mixing/mix.py"
        before = mix.read_bytes()
        mix.write_bytes(before + b"# changed while the stage ran\n")
        assert python(project, code) == 0
        mix.write_bytes(before)
    record = newest(project)
    found = {name for name in record["unlisted_modules"] if name.endswith("in worker")}
    assert found == {"mix (pathfinder/mixing/mix.py) in worker"}
    assert record["processes"] == {"worker": 2}


def test_workers_graders_and_ranks_report_their_journals_and_packages(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "infra/locks/cpu.lock").write_text("polars==0.0.1\n")
    rank = f"from evidence.record.record import recorded\nwith recorded({COMMAND!r}): pass"
    with recorded(COMMAND):
        with Workers(Draws(), 2) as workers:
            pids = workers.run(cut(range(4), 1), project / "chunks", "t")
        with Grader() as grader:
            assert grader.is_right(("1/2",), "0.5")
        assert python(project, rank, RANK="1") == 0
    assert str(os.getpid()) not in pids
    record = newest(project)
    assert record["processes"] == {"grader": 1, "rank 1": 1, "worker": 2}
    folder = Path(JOURNAL).parent.as_posix()
    assert [name for name in record["journals"] if name.startswith(folder)] == [
        f"{folder}/{number:06d}.jsonl" for number in range(4)
    ]
    use = record["journals"][f"{folder}/000000.jsonl"]
    content = (project / folder / "000000.jsonl").read_bytes()
    assert (use["before"] or {"size": 0})["size"] == 0
    assert use["used"] == {
        "entries": 1,
        "sha256": hashlib.sha256(content).hexdigest(),
        "ranges": [[0, len(content)]],
    }
    assert set(record["unlocked_packages"]) == {"polars"}, "what this process has, too, is named once"
    assert any(str(PROJECT) not in name and "workers" in name for name in record["unlisted_modules"])


def rewritten(path: Path, number: int) -> None:
    """Change one answer of a journal and its check sum."""
    lines = path.read_bytes().splitlines(keepends=True)
    body = lines[number].partition(b", ")[2].rstrip(b"\n").replace(b"good", b"evil")
    lines[number] = b'{"sum": "%b", %b\n' % (hashlib.sha256(body).hexdigest()[:16].encode(), body)
    path.write_bytes(b"".join(lines))
    with Journal(path) as journal:
        assert "evil" in [journal[str(key)] for key in range(3)], "the journal itself accepts it"


@pytest.mark.parametrize(("number", "changed"), [(1, "answers"), (2, "entries that the run did not use")])
def test_a_journal_rewritten_with_its_check_sums_is_found(
    project: Path, monkeypatch: pytest.MonkeyPatch, number: int, changed: str
) -> None:
    monkeypatch.chdir(project)
    path = Path(".pathfinder/label/0/journal.jsonl")
    with Journal(path) as journal:
        journal.append({str(key): "good" for key in range(3)})
    with recorded(COMMAND), Journal(path) as journal:
        assert (journal["0"], journal["1"]) == ("good", "good")
    assert newest(project)["journals"][path.as_posix()]["used"]["entries"] == 2
    rewritten(path, number)
    (found,) = [finding for finding in check(root=project).errors if finding.subject == path.as_posix()]
    assert f"left: {changed} were changed after the run" in found.message
