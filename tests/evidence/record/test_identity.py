"""Code identity: the digest changes with the code that dvc.yaml lists for a stage, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.dvc.history import read_lock
from evidence.dvc.pipeline import read_pipeline
from evidence.record.identity import PROJECT, code_digest, is_code
from ground.hashing import digest_path
from ground.io import DataError, digest_of
from infra.deps import code_deps


@pytest.fixture(autouse=True)
def uncached() -> None:
    code_digest.cache_clear()


def changed(project: Path, file: str) -> bool:
    """True if the digest of the train stage changes when ``file`` gets one more line."""
    code_digest.cache_clear()
    before = code_digest("train", project)
    path = project / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b"# changed\n")
    code_digest.cache_clear()
    return code_digest("train", project) != before


@pytest.mark.parametrize(
    "file",
    [
        "stages/train.py",
        "stages/__init__.py",
        "pathfinder/__init__.py",
        "pathfinder/mixing/mix.py",
        "pathfinder/mixing/__init__.py",
        "pathfinder/mixing/new.py",
        "ground/io.py",
        "infra/locks/cpu.lock",
        "infra/locks/cuda.lock",
    ],
)
def test_any_file_of_a_listed_room_or_lock_changes_the_digest(project: Path, file: str) -> None:
    assert changed(project, file)


@pytest.mark.parametrize(
    "file",
    [
        "stages/download.py",
        "infra/kinds.py",
        "evidence/record/record.py",
        "evidence/verbs/check.py",
        "pathfinder/mixing/__pycache__/mix.cpython-311.pyc",
        "params.yaml",
        "data/corpus/one.txt",
    ],
)
def test_other_files_do_not_change_the_digest(project: Path, file: str) -> None:
    assert not changed(project, file)


def test_a_renamed_file_changes_the_digest(project: Path) -> None:
    before = code_digest("train", project)
    (project / "pathfinder/mixing/mix.py").rename(project / "pathfinder/mixing/blend.py")
    code_digest.cache_clear()
    assert code_digest("train", project) != before


def test_the_digest_covers_exactly_what_dvc_locked(made: Path) -> None:
    stage = read_pipeline(made)["train@full"]
    code = [path for path in stage.deps if is_code(path)]
    assert code == code_deps(stage.cmd, made)
    assert code == [
        *("stages/train.py", "stages/__init__.py", "pathfinder/__init__.py"),
        *("ground", "pathfinder/mixing", "infra/locks"),
    ]
    locked = read_lock(made)["train@full"].deps
    digests = {path: digest_path(made / path) for path in code}
    assert {path: digest.md5 for path, digest in digests.items()} == {path: locked[path] for path in code}
    assert code_digest("train", made) == digest_of({path: digest.sha256 for path, digest in digests.items()})
    assert code_digest("train@full", made) == code_digest("train@plain", made) == code_digest("train", made)


def test_variants_share_the_digest_of_the_running_project() -> None:
    assert code_digest("train") == code_digest("train", PROJECT)
    assert code_digest("train") != code_digest("search")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("stages/train.py", True),
        ("pathfinder/core", True),
        ("infra/locks", True),
        ("infra/world/x.json", False),
        ("artifacts/raw", False),
        ("models/stages", False),
    ],
)
def test_code_is_distinguished_from_data(path: str, expected: bool) -> None:
    assert is_code(path) is expected


def test_unknown_stages_and_missing_code_are_named(project: Path) -> None:
    with pytest.raises(DataError, match="no stage search"):
        code_digest("search", project)
    with pytest.raises(DataError, match="runs no module"):
        code_deps("bash train.sh", project)
    (project / "stages/train.py").unlink()
    with pytest.raises(DataError, match=r"train lists .*stages/train\.py, which does not exist; run"):
        code_digest("train", project)
