"""The project at a revision: what the folder has, which texts name a revision, and errors that name the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.dvc import history
from evidence.dvc.pipeline import read_pipelines
from evidence.record.reading import read_records
from evidence.remote.publication import publication
from evidence.verbs.every_commit import check_all_commits
from evidence.verbs.finding import find
from evidence.verbs.targets import Files, Target, at, commit_of, names_at, read_at, target_of
from ground.io import DataError
from tests.evidence.verbs.conftest import git


def test_a_revision_has_its_own_lock_and_parameters_and_this_machines_records(twice: Path) -> None:
    before = git(twice, "status", "--porcelain")
    with at(twice, "HEAD~2") as folder:
        stages = history.read_lock(folder)
        assert stages["train@full"].params["train"]["rate"] == 0.5
        assert set(read_pipelines(folder)) == {"download", "train@full", "train@plain"}
        assert len(read_records(folder, "train@full")) == 2
        assert not (folder / "stages").exists()
        kept = folder
    assert not kept.exists()
    assert (twice / ".pathfinder/lineage").is_dir(), "the folder's links are removed, not what they lead to"
    with at(twice, "HEAD") as folder:
        assert history.read_lock(folder)["train@full"].params["train"]["rate"] == 0.25
    with at(twice, None) as folder:
        assert folder == twice
    assert git(twice, "status", "--porcelain") == before


def test_files_are_read_in_one_go_and_missing_ones_left_out(twice: Path) -> None:
    found = read_at(twice, "HEAD~1", ["params.yaml", "absent.txt", "pathfinder", "dvc.yaml"])
    assert found.keys() == {"params.yaml", "dvc.yaml"}
    assert found["params.yaml"].decode() == "train: {rate: 0.25, note: 'Ünïcode <+>'}\n"
    assert read_at(twice, "HEAD", []) == {}


def test_a_project_in_a_folder_of_a_repository_is_read_at_a_revision(small: Path) -> None:
    git(small.parent, "init", "-q")
    git(small.parent, "add", "project")
    git(small.parent, "commit", "-qm", "first")
    assert {"dvc.yaml", "params.yaml"} <= {*names_at(small, "HEAD")}
    assert Files(small, "HEAD").read("params.yaml") == (small / "params.yaml").read_bytes()
    (small / ".dvc").rename(small.parent / ".dvc")
    (checked,) = check_all_commits(small)
    assert (checked.stages, checked.attested) == (2, 2)
    for outside in ("../params.yaml", "../../../../../../../../etc/hostname.absent"):
        with pytest.raises(DataError, match="no such file"):
            Files(small).read(outside)


def test_a_commit_that_a_merge_left_behind_is_checked_and_a_history_that_git_cannot_list_is_an_error(
    small: Path, tmp_path: Path
) -> None:
    git(small, "init", "-q", "-b", "main")
    git(small, "add", "dvc.lock", "dvc.yaml", "params.yaml")
    git(small, "commit", "-qm", "first")
    git(small, "checkout", "-qb", "forged")
    lock = (small / "dvc.lock").read_text()
    (small / "dvc.lock").write_text(lock.replace("rate: 0.5", "rate: 0.7"))
    git(small, "commit", "-qam", "forged")
    git(small, "checkout", "-q", "main")
    git(small, "merge", "-q", "-s", "ours", "-m", "merge", "forged")
    forged = git(small, "rev-parse", "forged").strip()
    assert forged in [each.commit for each in check_all_commits(small)]
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{small}", "shallow")
    (cut,) = check_all_commits(tmp_path / "shallow")
    assert "note: .git/shallow: cuts the history off here" in str(cut.findings[-1])
    (small / ".git/HEAD").write_text("ref: refs/heads/absent\n")
    with pytest.raises(DataError, match="the history is unknown"):
        check_all_commits(small)


def test_a_profile_that_is_no_text_is_left_out_of_the_log(small: Path) -> None:
    (small / "params.yaml").write_text("profile: false\n")
    assert publication(small)[0]["profile"] is None


def test_the_path_of_a_file_in_git_is_relative_and_has_no_escapes(small: Path) -> None:
    git(small.parent, "init", "-q")
    name = "data/d\u00e9 f.txt"
    (small / name).write_text("once")
    git(small.parent, "add", f"project/{name}")
    git(small.parent, "commit", "-qm", "first")
    places = find(str(small / name), small)["places"]
    assert [place["path"] for place in places if place["kind"] == "git"] == [name]


@pytest.mark.parametrize("revision", ["absent", "", "--all", "HEAD~99"])
def test_an_unknown_revision_is_one_line(twice: Path, revision: str) -> None:
    with pytest.raises(DataError, match="no such revision"):
        commit_of(twice, revision)


def test_errors_name_the_file_of_the_revision(twice: Path) -> None:
    first = git(twice, "rev-list", "--max-parents=0", "HEAD").strip()
    with pytest.raises(DataError, match=f"^{first}:dvc.lock: no such file"), at(twice, first) as folder:
        history.read_lock(folder)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train@full", Target("train@full")),
        ("train@full@HEAD~1", Target("train@full", "HEAD~1")),
        ("models/full@HEAD", Target("models/full", "HEAD")),
        ("models/full@HEAD@{0}", Target("models/full", "HEAD@{0}")),
        ("./models/full/weights.txt", Target("models/full/weights.txt")),
        ("metrics/train/full.json@HEAD#/loss", Target("metrics/train/full.json", "HEAD", "/loss")),
        ("metrics/train/full.json#", Target("metrics/train/full.json", None, "")),
        ("absent@nowhere", Target("absent@nowhere")),
    ],
)
def test_a_target_names_a_stage_or_file_then_a_revision_then_a_place(twice: Path, text: str, expected: Target) -> None:
    assert target_of(text, twice) == expected


@pytest.mark.parametrize("text", ["models/full@nope", "train@full@nope", "params.yaml@nope", "models/full@nope#/loss"])
def test_an_unknown_revision_of_a_known_target_is_named(twice: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"^nope: no such revision of this repository"):
        target_of(text, twice)


def test_the_bytes_of_an_older_out_come_from_the_cache(twice: Path) -> None:
    assert Files(twice, "HEAD~2").read("models/full/weights.txt").startswith(b"full 0.5 ")
    assert Files(twice, "HEAD").value("metrics/train/full.json") == {"loss": 0.25}
    assert Files(twice, "HEAD~2").read("params.yaml").startswith(b"train: {rate: 0.5")
    with pytest.raises(DataError, match="no such file"):
        Files(twice, "HEAD").read("absent.json")


def test_bytes_that_no_store_has_are_named_with_the_remedy(project: Path) -> None:
    git(project, "add", "dvc.lock")
    git(project, "commit", "-qm", "run")
    files = Files(project, "HEAD")
    for file in (project / ".dvc/cache/files/md5").rglob("*"):
        if file.is_file() and not file.name.endswith(".dir"):
            file.unlink()
    own = project / "metrics/train/full.json"
    assert files.read("metrics/train/full.json") == own.read_bytes(), "the project's file has the same bytes"
    own.write_text("{}")
    says = r"full.json: no store of this machine has its bytes \(md5 .*\); get them with `dvc fetch --all-commits`"
    with pytest.raises(DataError, match=says):
        files.read("metrics/train/full.json")
    with pytest.raises(DataError, match=r"models: no store of this machine lists its files \(md5 0.dir\)"):
        files.files_of("models", "0.dir")
