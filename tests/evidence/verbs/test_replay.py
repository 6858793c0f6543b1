"""``replay``: the same bytes again, near ones, other ones, and runs that cannot be repeated."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from evidence.__main__ import app
from evidence.record.reading import read_records
from evidence.verbs.replay import TOLERANCE, compared, replay
from evidence.verbs.targets import Files
from ground.hashing import digest_path
from ground.io import DataError, write_json, write_jsonl
from tests.evidence.verbs.conftest import git
from tests.support.miniature import run_in
from tests.support.verbs import checked

cli = CliRunner()
WAITS = """\
    import os, time
    os.symlink(str(os.getpid()), os.environ["STARTED"])
    time.sleep(2)
"""
"""The stage names its process, in one step, and waits."""


def state(project: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(project).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(project.rglob("*"))
        if ".git/" not in path.as_posix() and "__pycache__" not in path.as_posix()
    }


def test_a_stage_makes_the_same_bytes_again_and_nothing_here_changes(twice: Path) -> None:
    before = state(twice)
    found = replay("train@full", twice, say=print)
    assert found.verdict == "identical"
    assert found.outs.keys() == {"models/full", "metrics/train/full.json"}
    assert state(twice) == before
    assert git(twice, "worktree", "list").count("\n") == 1
    assert git(twice, "status", "--porcelain") == ""


def test_an_older_run_is_repeated_with_its_own_commit_and_parameters(twice: Path) -> None:
    found = replay("train@plain", twice, "HEAD~2", print)
    record = read_records(twice, "train@plain")[1]
    assert (found.verdict, found.record, found.commit) == (
        "identical",
        record.digest,
        git(twice, "rev-parse", "HEAD~3").strip(),
    )
    assert replay(record.digest[:12], twice, say=print).verdict == "identical"
    assert replay("download", twice, say=print).verdict == "identical"


@pytest.mark.parametrize(
    ("variable", "value", "verdict", "status"),
    [
        ("SHIFT", "1e-6", "within tolerance", 1),
        ("SHIFT", "1e-3", "different", 2),
        ("SUFFIX", "x", "different", 2),
    ],
)
def test_near_and_other_outs_have_their_own_exit_status(
    twice: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, verdict: str, status: int
) -> None:
    monkeypatch.chdir(twice)
    monkeypatch.setenv(variable, value)
    result = cli.invoke(app, ["replay", "train@full", "--json"])
    assert result.exit_code == status, result.output
    found = checked("lineage replay", result.stdout)
    assert (found["verdict"], found["tolerance"]) == (verdict, TOLERANCE)


def test_a_run_of_uncommitted_code_without_a_record_or_without_inputs_cannot_be_repeated(
    twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Path(shutil.copytree(twice, tmp_path / "project"))
    monkeypatch.chdir(project)
    with pytest.raises(DataError, match="no such stage"):
        replay("absent", project)
    shutil.rmtree(project / "artifacts")
    shutil.rmtree(project / ".dvc/cache")
    result = cli.invoke(app, ["replay", "train@full"])
    assert result.exit_code == 3
    assert "no store of this machine has its bytes" in result.stderr
    assert "get them with `dvc fetch`" in result.stderr
    shutil.rmtree(project / ".pathfinder/lineage/train@full")
    with pytest.raises(DataError, match=r"this machine has no record of the run in dvc\.lock"):
        replay("train@full", project)
    git(project, "worktree", "prune")
    assert git(project, "worktree", "list").count("\n") == 1


def test_code_that_was_not_committed_is_refused(project: Path) -> None:
    record = read_records(project, "train@full")[0]
    git(project, "add", "dvc.lock")
    git(project, "commit", "-qm", "run")
    content = json.loads(record.path.read_text())
    content["rooms"]["pathfinder/mixing"]["sha256"] = "0" * 64
    text = json.dumps(content)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (record.path.parent / f"{digest}.json").write_text(text)
    with pytest.raises(DataError, match="only committed code can be replayed"):
        replay(digest, project)


@pytest.fixture
def stored(project: Path) -> tuple[Path, Files]:
    """The project, and a reader of its cache, into which tests put files."""
    return project, Files(project)


def put(project: Path, path: Path) -> dict[str, object]:
    """The entry of a file, whose bytes go into the cache."""
    digest = digest_path(path)
    target = project / ".dvc/cache/files/md5" / digest.md5[:2] / digest.md5[2:]
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
    return digest.as_json()


def test_numbers_may_differ_a_little_and_nothing_else_may(stored: tuple[Path, Files]) -> None:
    project, files = stored
    path = project / "m.json"
    write_json(path, {"a": [1.0, 2], "t": "x"})
    entry = put(project, path)

    def verdict(value: object) -> str:
        write_json(path, value)
        return compared(path, entry, files).word

    assert verdict({"a": [1.0, 2], "t": "x"}) == "identical"
    assert verdict({"a": [1.00001, 2], "t": "x"}) == "within tolerance"
    for other in (
        {"a": [1.001, 2], "t": "x"},
        {"a": [1.0, 3], "t": "x"},
        {"a": [1.0, 2], "t": "y"},
        {"a": [1.0], "t": "x"},
    ):
        assert verdict(other) == "different", other
    for number in ("NaN", "Infinity"):
        path.write_text(f'{{"a": [{number}, 2], "t": "x"}}')
        assert compared(path, entry, files).word == "different"
    path.unlink()
    assert compared(path, entry, files).why == "was not made"


def test_lines_and_tensors_are_compared_number_by_number(stored: tuple[Path, Files]) -> None:
    project, files = stored
    lines, tensors = project / "p.jsonl", project / "w.safetensors"
    write_jsonl(lines, [{"reward": 0.5}, {"reward": 0.25}])
    entry = put(project, lines)
    write_jsonl(lines, [{"reward": 0.5}, {"reward": 0.25000001}])
    assert compared(lines, entry, files).word == "within tolerance"
    write_jsonl(lines, [{"reward": 0.5}])
    assert compared(lines, entry, files).word == "different"
    weights = np.linspace(-1, 1, 8, dtype=np.float32)
    save_file({"w": weights}, tensors)
    entry = put(project, tensors)
    save_file({"w": weights * np.float32(1 + 1e-6)}, tensors)
    assert compared(tensors, entry, files).word == "within tolerance"
    save_file({"w": weights * np.float32(1.01)}, tensors)
    assert compared(tensors, entry, files).word == "different"
    for number in (np.nan, np.inf):
        save_file({"w": np.append(weights[:-1], np.float32(number))}, tensors)
        assert compared(tensors, entry, files).word == "different"
    for other in ({"v": weights}, {"w": weights.astype(np.float64)}):
        save_file(other, tensors)
        assert compared(tensors, entry, files).why == "other tensors"


def test_a_replay_that_is_terminated_leaves_no_worktree_and_no_process(
    twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Path(shutil.copytree(twice, tmp_path / "project"))
    started = tmp_path / "started"
    monkeypatch.setenv("STARTED", str(started))
    stage = project / "stages/train.py"
    stage.write_text(stage.read_text().replace("    rate =", f"{WAITS}    rate =", 1))
    git(project, "commit", "-qam", "slow")
    (project / "params.yaml").write_text("train: {rate: 0.125, note: x}\n")
    git(project, "commit", "-qam", "rate")
    run_in(project, "-m", "stages.train", "full")
    record = read_records(project, "train@full")[0]
    code = f"import sys; from evidence.__main__ import app; app(['replay', '{record.digest}'])"
    started.unlink()
    process = subprocess.Popen([sys.executable, "-P", "-c", code], cwd=project, stderr=subprocess.DEVNULL)
    while not started.is_symlink() and process.poll() is None:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(20) == 143
    assert not Path("/proc", os.readlink(started)).exists()
    assert git(project, "worktree", "list").count("\n") == 1
