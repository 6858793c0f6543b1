"""The lineage of the shipped data/ continues through data.dvc to the pretraining pipeline and is checked by bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from evidence.dvc.stores import object_file
from evidence.verbs.check import check
from evidence.verbs.diff import sides_of
from evidence.verbs.views import view
from ground.hashing import digest_listing, digest_path
from ground.io import DataError
from tests.support.miniature import dvc
from tests.support.upwards import up

PRETRAIN = """
from pathlib import Path
import yaml
from ground.io import write_text
from evidence.record.stage import stage

@stage
def main(level: str) -> None:
    content = yaml.safe_load(Path("infra/pretraining/params.yaml").read_text())["levels"][level]
    for name, text in content["texts"].items():
        write_text(Path("artifacts/pretraining", level, "shipped/corpus", name), text)

if __name__ == "__main__":
    main()
"""
DVC_YAML = """
stages:
  corpus:
    wdir: ../..
    matrix: {level: [quickstart, other]}
    cmd: python -m world.pretrain ${item.level}
    deps: [ground, world, infra/locks]
    params:
    - infra/pretraining/params.yaml: ['levels.${item.level}.texts']
    outs: ['artifacts/pretraining/${item.level}/shipped/corpus']
"""
PARAMS = r"""
levels:
  quickstart:
    texts:
      one.txt: "one\n"
      b/two.txt: "two \u2028 lines\n"
      b-side.txt: "sorts before b/two as text and after it as a path\n"
  other:
    texts: {one.txt: "another\n"}
"""


@pytest.fixture(scope="module")
def linked(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The miniature project, and a second pipeline that made its data/."""
    project = Path(shutil.copytree(made, tmp_path_factory.mktemp("linked") / "project"))
    folder = project / "infra/pretraining"
    folder.mkdir(parents=True)
    (folder / "dvc.yaml").write_text(DVC_YAML)
    (folder / "params.yaml").write_text(PARAMS)
    (folder / ".dvcignore").write_text("!dvc.yaml\n")  # as `make world` does
    (project / "world").mkdir()
    (project / "world/__init__.py").touch()
    (project / "world/pretrain.py").write_text(PRETRAIN)
    dvc(project, "repro", "-q", "infra/pretraining/dvc.yaml")
    return project


@pytest.fixture
def copied(linked: Path, tmp_path: Path) -> Path:
    """A copy that the test may change."""
    return Path(shutil.copytree(linked, tmp_path / "project"))


def errors(project: Path, path: str | None = None) -> list[str]:
    return [str(finding) for finding in check(path, project).findings if finding.level == "error"]


@pytest.mark.parametrize("path", ["models/full", "data", "data/corpus", "data/corpus/b/two.txt"])
def test_the_lineage_continues_to_the_pretraining_stage(linked: Path, path: str) -> None:
    tree = up(path, linked)
    for text in (
        "data.dvc",
        "artifacts/pretraining/quickstart/shipped/corpus  md5",
        "corpus@quickstart  $",
        "world",
    ):
        assert text in tree
    assert '"one.txt": "one\\n"' in tree
    assert "corpus@other" not in tree
    assert check(None, linked).findings == []


def test_a_folder_of_the_shipped_data_is_in_a_store_and_has_no_run_to_compare_with(copied: Path) -> None:
    found = view("data/corpus/b", copied)
    assert (found["in a store"], [*found["files"]]) == (True, ["two.txt"])
    with pytest.raises(DataError, match=r"data/corpus: belongs to data\.dvc, .*; name a second side, such as HEAD~1"):
        sides_of("data/corpus", None, copied)
    object_file(copied / ".dvc/cache", found["files"]["two.txt"]).unlink()
    assert not view("data/corpus/b", copied)["in a store"]


def test_shipped_bytes_that_the_pipeline_did_not_make_are_found(copied: Path) -> None:
    (copied / "data/corpus/one.txt").write_text("not what the seed gives\n")
    dvc(copied, "add", "-q", "data")
    dvc(copied, "repro", "-q")
    found = errors(copied, "models/full")
    assert len(found) == 1
    assert found[0].startswith("error: data/corpus: is shipped as ")
    assert "which DIFFERS from artifacts/pretraining/quickstart/shipped/corpus" in up("models/full", copied)
    assert errors(copied, "artifacts/pretraining/quickstart/shipped/corpus") == []


def test_a_part_that_is_not_shipped_is_found(copied: Path) -> None:
    (copied / "data/corpus").rename(copied / "data/moved")
    dvc(copied, "add", "-q", "data")
    assert any("data/corpus: is shipped as nothing" in line for line in errors(copied))


def test_edited_recipes_outs_and_locks_are_found(copied: Path) -> None:
    (copied / "artifacts/pretraining/other/shipped/corpus/one.txt").write_text("edited")
    assert any("artifacts/pretraining/other/shipped/corpus/one.txt: md5 is" in line for line in errors(copied))
    params = copied / "infra/pretraining/params.yaml"
    params.write_text(params.read_text().replace("another", "a third"))
    wanted = "infra/pretraining/params.yaml: levels.other.texts.one.txt is a third"
    assert any(wanted in line for line in errors(copied))


def test_a_clone_without_the_outs_of_the_pipeline_is_complete(copied: Path) -> None:
    """The shipped bytes are checked instead; levels that are not shipped must be made."""
    shutil.rmtree(copied / "artifacts/pretraining")
    findings = [str(finding) for finding in check(None, copied).findings]
    assert findings == [
        "note: artifacts/pretraining: outs that are not shipped are missing; make them with `make world` (corpus@other)"
    ]
    (copied / "data/corpus/one.txt").write_text("edited")
    assert any("data/corpus/one.txt: md5 is" in line and "corpus@quickstart" in line for line in errors(copied))


def test_code_changed_since_is_a_note_and_not_an_error(copied: Path) -> None:
    path = copied / "world/pretrain.py"
    path.write_text(path.read_text() + "# later\n")
    findings = check(None, copied).findings
    assert {(finding.level, finding.where) for finding in findings} == {("note", "world/pretrain.py")}


def test_code_moved_since_is_a_note_and_not_an_error(copied: Path) -> None:
    (copied / "world").rename(copied / "pathfinder/worlds")
    path = copied / "infra/pretraining/dvc.yaml"
    path.write_text(
        path.read_text().replace("world.", "pathfinder.worlds.").replace("ground, world,", "ground, pathfinder/worlds,")
    )
    findings = check(None, copied).findings
    (note,) = map(str, findings)
    says, _, stages = note.removesuffix(")").partition(" (")
    assert says == (
        "note: infra/pretraining/dvc.lock: stages ran with commands or code that infra/pretraining/dvc.yaml no longer "
        "names"
    )
    assert sorted(stages.split(", ")) == ["corpus@other", "corpus@quickstart"]


def test_a_stage_that_made_the_shipped_data_is_expected_in_the_lock(copied: Path) -> None:
    lock = copied / "infra/pretraining/dvc.lock"
    lock.write_text("schema: '2.0'\nstages: {}\n")
    assert errors(copied) == [
        "error: infra/pretraining/dvc.lock: lacks stages that infra/pretraining/dvc.yaml defines: they never ran, or "
        "were removed from it (corpus@quickstart)"
    ]


def test_the_listing_of_a_part_has_the_digest_of_dvc(tmp_path: Path) -> None:
    for name in ("b-side", "b/two", "b/c/three", "b.x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    files = {name: digest.md5 for name, digest in digest_path(tmp_path).files.items()}
    assert digest_listing(files, "b") == digest_path(tmp_path / "b").md5
    assert digest_listing(files, "b.x") == digest_path(tmp_path / "b.x").md5
    assert digest_listing(files, "none") == ""
