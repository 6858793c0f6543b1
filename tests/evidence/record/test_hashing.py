from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml

from ground.hashing import digest_path


def test_md5_of_files_and_folders_is_what_dvc_wrote(made: Path) -> None:
    lock = yaml.safe_load((made / "dvc.lock").read_text())["stages"]
    entries = [entry for stage in lock.values() for entry in [*stage["deps"], *stage["outs"]]]
    assert len(entries) >= 10
    for entry in entries:
        digest = digest_path(made / entry["path"])
        assert (digest.md5, digest.size) == (entry["md5"], entry["size"]), entry["path"]
        assert digest.is_folder == entry["md5"].endswith(".dir")


def test_sha256_of_a_folder_changes_with_names_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"y")
    first = digest_path(tmp_path)
    assert first.files["a"].sha256 == hashlib.sha256(b"x").hexdigest()
    (tmp_path / "a").rename(tmp_path / "c")
    renamed = digest_path(tmp_path)
    (tmp_path / "c").write_bytes(b"z")
    assert len({first.sha256, renamed.sha256, digest_path(tmp_path).sha256}) == 3


def test_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        digest_path(tmp_path / "nothing")
