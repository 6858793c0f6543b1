"""After a run, dvc.lock has a fixed order, and the run says how it differs from the committed one."""

from __future__ import annotations

import json
import random
import re
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from evidence.dvc import lock
from evidence.dvc.pipeline import read_pipeline
from flows.local import committed
from ground.io import write_bytes
from tests.support.miniature import GIT

ROOT = Path(__file__).resolve().parents[2]
_DVC_YAML = """
stages:
  prepare: {cmd: python -m stages.prepare, deps: [data, pathfinder/core], outs: [artifacts/steps]}
  train:
    matrix: {run: [full, full-s2]}
    cmd: python -m stages.train ${item.run}
    deps: [artifacts/steps]
    params: [train]
    outs: ["models/${item.run}"]
  report:
    cmd: python -m stages.report
    deps: [models/full, models/full-s2]
    outs: [reports]
    metrics: [metrics/summary.json: {cache: false}]
"""
_README = """
| system | ProcessBench mean F1 | PRMScore | search accuracy |
| --- | --- | --- | --- |
| PathFinder-PRM | 88.6 [85.5, 91.6] | 93.6 [92.1, 95.1] | – |
| chance | 16.1 [11.9, 18.9] | – | – |

| claim | ProcessBench mean F1 |
| --- | --- |
| chance | open: -1.1 [-7.1, 4.9], p = 1.000 |
"""


def path_of(name: str, md5: str) -> dict[str, str]:
    return {"path": name, "hash": "md5", "md5": md5 * 32}


def lock_of(**changes: str) -> dict[str, object]:
    """The content of a dvc.lock; ``changes`` are digits that replace the digests of data, steps and the models."""
    digit = {"data": "1", "core": "2", "steps": "3", "full": "4", "s2": "5", "reports": "6", "rate": "7"} | changes
    steps, models = path_of("artifacts/steps", digit["steps"]), [path_of("models/full", digit["full"])]
    models.append(path_of("models/full-s2", digit["s2"]))
    deps = [path_of("data", digit["data"]), path_of("pathfinder/core", digit["core"])]
    stages = {"prepare": {"cmd": "python -m stages.prepare", "deps": deps, "outs": [steps]}}
    for run, model in zip(("full", "full-s2"), models, strict=True):
        params = {"params.yaml": {"train": {"rate": int(digit["rate"])}}}
        command = f"python -m stages.train {run}"
        stages[f"train@{run}"] = {"cmd": command, "deps": [steps], "params": params, "outs": [model]}  # type: ignore[dict-item]
    report = {"cmd": "python -m stages.report", "deps": models, "outs": [path_of("reports", digit["reports"])]}
    return {"schema": "2.0", "stages": {**stages, "report": report}}


def text_of(lock: Mapping[str, object]) -> str:
    return yaml.safe_dump(json.loads(json.dumps(lock)), sort_keys=False)  # without YAML's references


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a committed run."""
    (tmp_path / "dvc.yaml").write_text(_DVC_YAML, encoding="utf-8")
    (tmp_path / "dvc.lock").write_text(text_of(lock_of()), encoding="utf-8")
    (tmp_path / "README.md").write_text(_README, encoding="utf-8")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "run"]):
        subprocess.run([*git, *words], check=True)
    return tmp_path


def run(project: Path, score: float = 88.0, **changes: str) -> list[str]:
    """The message after a run that changed these digests and has this score."""
    (project / "dvc.lock").write_text(text_of(lock_of(**changes)), encoding="utf-8")
    (project / "reports").mkdir(exist_ok=True)
    cells = {"processbench": {"value": score, "low": 0.0, "high": 100.0}, "prmbench": "–", "search": "–"}
    other = {"processbench": {"value": 16.0, "low": 0.0, "high": 1.0}, "prmbench": "–", "search": "–"}
    results = [{"system": "PathFinder-PRM", **cells}, {"system": "chance", **other}]
    (project / "reports/tables.json").write_text(json.dumps({"results": results}), encoding="utf-8")
    return list(committed.explain(project))


def test_whoever_finishes_first_the_lock_is_the_same(project: Path) -> None:
    expected = (project / "dvc.lock").read_text(encoding="utf-8")
    stages = lock_of()["stages"]
    assert isinstance(stages, dict)
    order = random.Random(1)
    for _ in range(5):
        names = list(stages)
        order.shuffle(names)
        (project / "dvc.lock").write_text(text_of({"schema": "2.0", "stages": {n: stages[n] for n in names}}))
        lock.sort_lock(project)
        assert (project / "dvc.lock").read_text(encoding="utf-8") == expected
    older = {"schema": "2.0", "stages": {"older": stages["report"], "an@older": stages["report"], **stages}}
    (project / "dvc.lock").write_text(text_of(older))
    lock.sort_lock(project)
    assert list(yaml.safe_load((project / "dvc.lock").read_text())["stages"]) == [*stages, "an@older", "older"]


def test_sorting_changes_nothing_but_the_order_of_the_real_lock(tmp_path: Path) -> None:
    for name in ("dvc.yaml", "params.yaml", "dvc.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    before = (tmp_path / "dvc.lock").read_text(encoding="utf-8")
    lock.sort_lock(tmp_path)
    after = (tmp_path / "dvc.lock").read_text(encoding="utf-8")
    assert sorted(after.splitlines()) == sorted(before.splitlines())
    found = yaml.safe_load(after)["stages"]
    assert found == yaml.safe_load(before)["stages"]
    assert list(found) == [name for name in read_pipeline(tmp_path) if name in found]


def test_a_stage_whose_outs_the_cache_lacks_leaves_the_lock(project: Path) -> None:
    (project / ".dvc").mkdir()
    kept = project / ".dvc/cache/files/md5" / "33" / ("3" * 30)
    kept.parent.mkdir(parents=True)
    kept.touch()
    names = {"prepare", "train@full"}
    assert lock.drop_absent(project, names) == ["train@full"]
    assert list(yaml.safe_load((project / "dvc.lock").read_text())["stages"]) == ["prepare", "train@full-s2", "report"]
    assert lock.drop_absent(project, names) == []
    kept.unlink()
    assert lock.drop_absent(project, {"prepare", "train@full-s2", "report"}) == [
        "prepare",
        "train@full-s2",
        "report",
    ]
    assert not (project / "dvc.lock").exists(), "DVC refuses a lock without stages"
    assert lock.drop_absent(project, names) == []


def test_the_same_lock_and_a_folder_without_git_need_no_explanation(project: Path, tmp_path: Path) -> None:
    assert run(project) == []
    assert list(committed.explain(tmp_path.parent)) == []


def test_other_bytes_from_the_same_inputs_are_told_from_what_follows_of_them(project: Path) -> None:
    found = run(project, full="a", reports="b")
    assert found[0].startswith(
        "2 stages of 4 gave different bytes from the committed run's for the same inputs, first train@full;"
    )
    assert found[1] == "the figures agree: all 2 are inside the 95 % intervals of README.md"
    assert "`pathfinder run --keep-lock`" in found[2]
    assert (project / "dvc.lock").read_text(encoding="utf-8") == text_of(lock_of(full="a", reports="b"))


def test_a_figure_outside_its_interval_is_named(project: Path) -> None:
    found = run(project, score=80.0, full="a")
    assert found[1] == (
        "1 of 2 figures are outside the 95 % intervals of README.md: PathFinder-PRM, ProcessBench mean F1: 80.0, "
        "committed 88.6 [85.5, 91.6]"
    )


@pytest.mark.parametrize("changes", [{"rate": "9"}, {"core": "9", "steps": "8"}, {"data": "9", "steps": "8"}])
def test_changed_parameters_code_and_data_are_no_other_bytes(project: Path, changes: dict[str, str]) -> None:
    found = run(project, 88.0, full="a", s2="b", reports="c", **changes)
    count = 3 if "rate" in changes else 4
    assert found[0] == f"{count} stages had different code, parameters or inputs from the committed dvc.lock"
    assert len(found) == 2


def test_the_committed_lock_can_be_kept(project: Path) -> None:
    (project / "metrics").mkdir()
    (project / "metrics/summary.json").write_text("{}")
    for words in (["add", "metrics"], ["commit", "-qm", "Summary"]):
        subprocess.run([*GIT, "-C", str(project), *words], check=True)
    run(project, full="a")
    (project / "metrics/summary.json").write_text('{"f1": 1}')
    own = (project / "dvc.lock").read_bytes()
    assert list(committed.explain(project, keep=True))[-1] == (
        "the committed dvc.lock is back; the one of this run is .pathfinder/dvc.lock"
    )
    assert (project / ".pathfinder/dvc.lock").read_bytes() == own
    assert (project / "metrics/summary.json").read_text() == "{}"
    status = subprocess.run(
        ["git", "-C", str(project), "status", "--porcelain", "dvc.lock"], capture_output=True, check=True
    )
    assert status.stdout == b""


def test_the_times_of_stages_come_from_their_records_or_the_committed_evidence(tmp_path: Path) -> None:
    shipped = ROOT / "docs/evidence/quickstart.tar.xz"
    (tmp_path / "docs/evidence").mkdir(parents=True)
    (tmp_path / "docs/evidence/quickstart.tar.xz").write_bytes(shipped.read_bytes())
    assert committed.earlier_seconds(tmp_path, "paper", ["label"]) == {}
    found = committed.earlier_seconds(tmp_path, "quickstart", ["label"])
    assert found.keys() == read_pipeline(ROOT).keys()
    assert min(found.values()) > 0.1
    content = shipped.read_bytes()
    for damaged in (b"", b"no archive", content[: len(content) // 2], content[:9999] + bytes(9) + content[10008:]):
        (tmp_path / "docs/evidence/damaged.tar.xz").write_bytes(damaged)
        assert committed.earlier_seconds(tmp_path, "damaged", ["label"]) == {}
    with tarfile.open(shipped) as archive:
        name = next(name for name in archive.getnames() if re.fullmatch(r"records/label/\w+\.json", name))
        record = archive.extractfile(name)
        assert record is not None
        write_bytes(tmp_path / name.replace("records", ".pathfinder/lineage"), record.read())
    assert committed.earlier_seconds(tmp_path, "paper", ["label", "train@full"]) == {"label": found["label"]}
