"""``diff``: the input that changed is named with both values, and so are the outs and figures that follow."""

from __future__ import annotations

import hashlib
import json
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from evidence.record.reading import read_records
from evidence.verbs.diff import Side, _figures, diff, lines_of
from evidence.verbs.targets import Files
from ground.hashing import digest_path
from ground.io import DataError, digest_of, write_json
from tests.evidence.verbs.conftest import git


def causes(found: dict[str, Any]) -> dict[tuple[str, str], tuple[Any, Any]]:
    return {(one["kind"], one["about"]): (one["left"], one["right"]) for one in found["causes"]}


def test_two_revisions_differ_in_a_parameter_and_in_code(twice: Path) -> None:
    found = diff("HEAD~2", "HEAD", twice)
    assert causes(found) == {
        ("params", "train.rate"): (0.5, 0.25),
        ("code", "pathfinder/mixing"): ("", "1 file: mix.py"),
        ("code", "stages/train.py"): causes(found)["code", "stages/train.py"],
    }
    assert {tuple(one["stages"]) for one in found["causes"]} == {("train@full", "train@plain")}
    assert {one["stage"]: one["outs"] for one in found["follows"]} == {
        "train@full": ["metrics/train/full.json", "models/full"],
        "train@plain": ["metrics/train/plain.json", "models/plain"],
    }
    assert found["not explained"] == []
    text = "\n".join(lines_of(found))
    assert "params train.rate 0.5 -> 0.25  [train@full, train@plain]" in text
    assert "code pathfinder/mixing (1 file: mix.py)" in text


def test_a_folder_that_stages_fill_is_no_cause_of_its_own(twice: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(twice, tmp_path / "project"))
    reader = "  report:\n    cmd: python -m stages.report\n    deps: [{path: models, md5: %s.dir}]\n"
    for digit, commit in (("1", "HEAD~2"), ("2", "HEAD")):
        lock = git(twice, "show", f"{commit}:dvc.lock").replace("stages:\n", "stages:\n" + reader % (digit * 32), 1)
        (project / "dvc.lock").write_text(lock)
        git(project, "commit", "-qam", f"a reader of models {digit}")
    found = diff("HEAD~1", "HEAD", project)
    assert {one["kind"] for one in found["causes"]} == {"params", "code"}


def test_a_side_can_be_the_files_here_and_equal_sides_have_no_difference(twice: Path) -> None:
    assert causes(diff("HEAD~2", None, twice)) == causes(diff("HEAD~2", "HEAD", twice))
    same = diff("HEAD", None, twice)
    assert (same["causes"], same["follows"]) == ([], [])
    assert "no input differs" in "\n".join(lines_of(same))


def test_two_records_and_two_models_are_compared_whatever_their_stages_are(twice: Path) -> None:
    new, old = read_records(twice, "train@full")
    found = diff(old.digest[:12], new.digest, twice)
    assert causes(found)["params", "train.rate"] == (0.5, 0.25)
    assert found["figures"] == [{"figure": "metrics/train/full.json#/loss", "left": 0.5, "right": 0.25}]
    found = diff("models/full", "models/plain", twice)
    assert causes(found) == {("command", "command"): ("python -m stages.train full", "python -m stages.train plain")}
    assert found["follows"][0]["outs"] == ["models/full and models/plain"]
    found = diff("models/full@HEAD~2", "models/full", twice)
    assert causes(found)["params", "train.rate"] == (0.5, 0.25)


def test_a_record_is_compared_with_what_its_stage_would_read_now(project: Path) -> None:
    (record,) = read_records(project, "train@full")
    assert diff(record.digest[:12], None, project)["causes"] == []
    (project / "params.yaml").write_text("train: {rate: 0.75, note: 'Ünïcode <+>'}\n")
    (project / "pathfinder/mixing/more.py").write_text("MORE = 1\n")
    for name in (record.digest, "models/full"):
        assert causes(diff(name, None, project)) == {
            ("params", "train.rate"): (0.5, 0.75),
            ("code", "pathfinder/mixing"): ("", "1 file: more.py"),
        }


def test_a_record_is_compared_with_the_same_stage_of_a_revision(twice: Path) -> None:
    old = read_records(twice, "train@full")[1]
    found = diff(old.digest, "HEAD", twice)
    assert {stage for one in found["causes"] for stage in one["stages"]} == {"train@full"}
    assert causes(found)["params", "train.rate"] == (0.5, 0.25)
    assert found["figures"] == [{"figure": "metrics/train/full.json#/loss", "left": 0.5, "right": 0.25}]


def test_a_revision_with_one_stage_is_compared_with_the_lock_and_with_all_stages(tmp_path: Path) -> None:
    def commit(**rates: int) -> None:
        stages = {name: {"cmd": "fit", "params": {"params.yaml": {"rate": rates[name]}}} for name in rates}
        write_json(tmp_path / "dvc.lock", {"schema": "2.0", "stages": stages})
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", "run")

    (tmp_path / ".dvc").mkdir()
    (tmp_path / "params.yaml").write_text("rate: 77")
    (tmp_path / "dvc.yaml").write_text("stages: {a: {cmd: fit, params: [rate]}}")
    git(tmp_path, "init", "-q")
    commit(a=1)
    assert causes(diff("HEAD", None, tmp_path)) == {}
    commit(a=1, b=2)
    found = diff("HEAD~1", "HEAD", tmp_path)
    assert (found["only left"], found["only right"]) == ([], ["b"])


def altered(project: Path, change: Any) -> str:
    """The digest of a copy of the record of train@full with a change of its content."""
    (record,) = read_records(project, "train@full")
    content = json.loads(record.path.read_text())
    change(content)
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    (record.path.parent / f"{digest}.json").write_text(text)
    return digest


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda c: c["environment"].update(torch={"capability": "AVX2"}),
            "CPU capability nothing -> AVX2",
        ),
        (lambda c: c["environment"].update(python="3.12.0"), "Python "),
        (lambda c: c["environment"]["packages"].update(pydantic="0.1"), "package pydantic "),
        (lambda c: c["environment"]["variables"].update(OMP_NUM_THREADS="7"), "variable OMP_NUM_THREADS "),
        (
            lambda c: c["journals"].update(
                {".pathfinder/label/j.jsonl": {"before": {"size": 5, "sha256": digest_of(1)}, "after": None}}
            ),
            "journal .pathfinder/label/j.jsonl nothing -> 5 bytes, sha256 ",
        ),
        (lambda c: c.update(cmd="python -m stages.train other"), "command python -m stages.train full -> "),
    ],
    ids=["torch", "python", "package", "variable", "journal", "command"],
)
def test_the_input_that_changed_between_two_records_is_named(project: Path, change: Any, line: str) -> None:
    (record,) = read_records(project, "train@full")
    found = diff(record.digest, altered(project, change), project)
    assert len(found["causes"]) == 1
    assert any(line in text for text in lines_of(found)), list(lines_of(found))


def test_the_instruction_set_has_its_own_name(project: Path) -> None:
    old = altered(project, lambda c: c["environment"].update(torch={"capability": "AVX512", "threads": 2}))
    content = json.loads((project / f".pathfinder/lineage/train@full/{old}.json").read_text())

    def slower(c: dict[str, Any]) -> None:
        c["environment"] = content["environment"] | {"torch": {"capability": "AVX2", "threads": 2}}

    (project / f".pathfinder/lineage/train@full/{old}.json").rename(project / "kept.json")
    new = altered(project, slower)
    shutil.move(project / "kept.json", project / f".pathfinder/lineage/train@full/{old}.json")
    assert "  CPU capability AVX512 -> AVX2  [train@full]" in list(lines_of(diff(old, new, project)))


def test_outs_that_differ_although_no_input_does_are_not_explained(project: Path) -> None:
    other = altered(project, lambda c: c["outputs"]["models/full"].update(md5=f"{'0' * 32}.dir"))
    (first, second) = read_records(project, "train@full")
    old = next(record for record in (first, second) if record.digest != other)
    found = diff(old.digest, other, project)
    assert found["not explained"] == ["train@full"]
    assert "NOT EXPLAINED" in "\n".join(lines_of(found))


def test_the_main_results_that_changed_are_listed(project: Path) -> None:
    def tables(value: float) -> dict[str, Any]:
        return {"results": [{"system": "ours", "search": {"value": value, "low": 0.0, "high": 100.0}, "prm": "–"}]}

    other = Path(shutil.copytree(project, project.parent / "other"))
    for folder, value in ((project, 1.0), (other, 2.0)):
        write_json(folder / "reports/tables.json", tables(value))
    stages = Files(project).stages
    sides = [Side("x", stages, files=Files(folder)) for folder in (project, other)]
    assert list(_figures(*sides)) == [{"figure": "ours, search", "left": 1.0, "right": 2.0}]


@pytest.mark.parametrize("tables", [{"other": 1}, [], {"results": {"a": 1}}, {"results": [1, {"prm": {"value": 1}}]}])
def test_tables_with_other_content_have_no_main_results(project: Path, tables: Any) -> None:
    write_json(project / "reports/tables.json", tables)
    stages, files = Files(project).stages, Files(project)
    assert list(_figures(*(Side("x", stages, files=files) for _ in range(2)))) == []


def test_a_side_that_is_nothing_is_one_line(twice: Path) -> None:
    with pytest.raises(DataError, match="neither a revision, nor a record's digest, nor an output"):
        diff("absent", None, twice)


def test_without_records_the_lock_files_name_the_package(project: Path) -> None:
    shutil.rmtree(project / ".pathfinder/lineage")
    git(project, "add", "dvc.lock")
    git(project, "commit", "-qm", "run")
    pins, lock = project / "infra/locks/cpu.lock", project / "dvc.lock"
    old = digest_path(pins.parent).md5
    version = metadata.version("pydantic")
    pins.write_text(pins.read_text().replace(f"=={version}", "==0.1"))
    lock.write_text(lock.read_text().replace(old, digest_path(pins.parent).md5))
    git(project, "commit", "-qam", "other packages")
    for right in ("HEAD", None):
        assert causes(diff("HEAD~1", right, project)) == {("package", "pydantic"): (version, "0.1")}
