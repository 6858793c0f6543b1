"""A remote is read without a request per object, or byte by byte in a pass that an interruption does not waste."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evidence.__main__ import app
from evidence.remote.reading import VERIFIED
from evidence.verbs.check import check
from flows.local import storage
from ground import remote
from ground.io import TransientError
from tests.evidence.tampering.edits import flip


@pytest.fixture
def far(project: Path, tmp_path: Path) -> Path:
    """The folder of a remote that DVC's configuration names as if it were on another machine."""
    folder = tmp_path / "remote"
    shutil.copytree(project / ".dvc/cache", folder)
    storage.publish(project, str(folder))
    with (project / ".dvc/config").open("a") as config:
        config.write(f"['remote \"far\"']\n    url = file://{folder}\n")
    check(None, project, remote="quick")
    return folder


class Reads:
    """The objects whose bytes were read; after ``most`` of them, the remote does not answer."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.most = 1000

    def add(self, key: str) -> None:
        if len(self.keys) >= self.most:
            raise TransientError(f"{key}: no answer")
        self.keys.append(key)


@pytest.fixture
def reads(far: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    found, kind = Reads(), type(remote.open_store(str(far)))
    chunks = kind.chunks

    def counted(store: Any, key: str) -> Iterator[bytes]:
        if key.startswith("files/"):
            found.add(key)
        yield from chunks(store, key)

    monkeypatch.setattr(kind, "chunks", counted)
    return found


def test_by_default_only_the_listing_is_read(project: Path, reads: Reads) -> None:
    assert check(None, project, remote="quick").errors == []
    assert {key[-4:] for key in reads.keys} == {".dir"}  # a folder states no md5, and listings are small
    assert not list((project / VERIFIED).glob("*"))


def test_an_interrupted_pass_reads_only_what_was_not_verified(project: Path, far: Path, reads: Reads) -> None:
    assert check(None, project, remote="full").errors == []
    whole = sorted(reads.keys)
    assert len(whole) == len(set(whole)) > 8
    reads.keys, reads.most = [], 6
    with pytest.raises(TransientError):
        check(None, project, remote="full")
    verified = (project / VERIFIED / "far.jsonl").read_text().splitlines()
    assert 0 < len(verified) <= 6
    done = [json.loads(line)[0] for line in verified]
    again = far / done[0]
    again.chmod(0o644)
    again.write_bytes(again.read_bytes())  # the same bytes, but the listing shows that the object was written
    reads.keys, reads.most = [], 1000
    assert check(None, project, remote="full").errors == []
    assert sorted(reads.keys) == sorted({*whole} - {*done[1:]})
    assert not (project / VERIFIED / "far.jsonl").exists()
    reads.keys = []
    assert check(None, project, remote="full").errors == []
    assert sorted(reads.keys) == whole


def test_an_object_that_was_edited_after_it_was_verified_is_found(project: Path, far: Path, reads: Reads) -> None:
    reads.most = 6
    with pytest.raises(TransientError):
        check(None, project, remote="full")
    key = next(
        key
        for line in (project / VERIFIED / "far.jsonl").read_text().splitlines()
        if not (key := json.loads(line)[0]).endswith(".dir")
    )
    (far / key).chmod(0o644)
    flip(far / key)  # keeps size and modification time
    reads.most = 1000
    errors = [str(finding) for finding in check(None, project, remote="full").errors]
    assert [f"{key}: md5 is" in text for text in errors] == [True]


def test_full_alone_reads_remotes_as_its_help_and_the_manual_say(
    project: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    result = CliRunner().invoke(app, ["check", "--full"])
    assert result.exit_code == 0, result.output
    assert len(reads.keys) > 8
    assert "remote far read" in result.output
    page = CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    assert "Like --remote, but read every byte there" in page
    manual = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    assert "--full          # like --remote, and every byte" in manual
