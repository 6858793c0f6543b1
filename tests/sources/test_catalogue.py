from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from ground.io import DataError
from pathfinder.core.params import Download, Source
from pathfinder.sources.catalogue import MIRROR_VARIABLE, Fetched, fetch_source
from tests.support.servers import FileServer, file_server

BODY = bytes(range(256)) * 5000
DIGEST = hashlib.sha256(BODY).hexdigest()


def source(kind: str, location: str, files: dict[str, Any] | None = None, **more: Any) -> Source:
    values = {"name": "x", "kind": kind, "location": location, "revision": None, "licence": "MIT", "files": files or {}}
    return Source.model_validate(values | more)


def fetch(entry: Source, folder: Path, mirror: Path | None = None, retries: int = 3) -> Fetched:
    settings = Download(world="data", retries=retries, timeout_s=5.0, sources=[entry])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MIRROR_VARIABLE, str(mirror or ""))
        return fetch_source(entry, folder, settings)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathfinder.sources.http_fetch.time.sleep", lambda _: None)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    root = tmp_path / "root" / "set"
    (root / "sub").mkdir(parents=True)
    (root / "a.bin").write_bytes(BODY)
    (root / "sub" / "b.txt").write_text("b", encoding="utf-8")
    (root / ".DS_Store").write_text("no", encoding="utf-8")
    return root.parent


def test_a_mirror_without_a_list_copies_every_visible_file(origin: Path, tmp_path: Path) -> None:
    fetched = fetch(source("mirror", "set"), tmp_path / "out", origin)
    assert fetched.files == {
        "a.bin": {"sha256": DIGEST, "bytes": len(BODY)},
        "sub/b.txt": {"sha256": hashlib.sha256(b"b").hexdigest(), "bytes": 1},
    }
    assert (tmp_path / "out" / "a.bin").read_bytes() == BODY
    assert list(fetch(source("mirror", "set", {"sub/b.txt": None}), tmp_path / "out", origin).files) == ["sub/b.txt"]


def test_a_listed_file_may_have_another_path_upstream(origin: Path, tmp_path: Path) -> None:
    files = {"c.txt": {"path": "sub/b.txt", "sha256": hashlib.sha256(b"b").hexdigest()}}
    for kind, location in (("mirror", "set"), ("s3", (origin / "set").as_uri())):
        folder = tmp_path / kind
        assert list(fetch(source(kind, location, files), folder, origin).files) == ["c.txt"]
        assert (folder / "c.txt").read_bytes() == b"b"
    with file_server(FileServer({"/rev/sub/b.txt": b"b"})) as server:
        fetch(source("https", server.url, files, revision="rev"), tmp_path / "https")
        assert (tmp_path / "https" / "c.txt").read_bytes() == b"b"
    files["c.txt"]["sha256"] = "0" * 64
    with pytest.raises(DataError, match=r"c\.txt has sha256 .* expected 0000"):
        fetch(source("mirror", "set", files), tmp_path / "wrong", origin)
    with pytest.raises(DataError, match="not a file name below the source"):
        fetch(source("mirror", "set", {"c.txt": {"path": "../b.txt", "sha256": None}}), tmp_path / "wrong", origin)


def test_a_mirror_needs_its_variable(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="PATHFINDER_MIRROR is not set"):
        fetch(source("mirror", "set"), tmp_path / "out")


def test_a_wrong_digest_names_file_expected_found_and_remedy(origin: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        fetch(source("mirror", "set", {"a.bin": "0" * 64}), tmp_path / "out", origin)
    for part in ("a.bin", "0" * 64, DIGEST, "download.sources"):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "", ".hidden", "a\\b"])
def test_file_names_cannot_leave_the_source(origin: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="not a file name below the source"):
        fetch(source("mirror", "set", {name: None}), tmp_path / "out", origin)


@pytest.mark.parametrize("target", ["sub", "nothing", "link"])
def test_a_link_whose_files_would_be_left_out_is_refused(origin: Path, tmp_path: Path, target: str) -> None:
    (origin / "set/link").symlink_to(target)
    with pytest.raises(DataError, match="set/link is a link to a folder or to nothing"):
        fetch(source("mirror", "set"), tmp_path / "out", origin)
    with pytest.raises(DataError, match="set has no file link"):
        fetch(source("mirror", "set", {"link": None}), tmp_path / "out", origin)


@pytest.mark.parametrize("listed", [None, "link"])
def test_a_link_in_a_mirror_cannot_leave_it(origin: Path, tmp_path: Path, listed: str | None) -> None:
    (tmp_path / "secret").write_text("s")
    (origin / "set/link").symlink_to("sub/b.txt")
    files = {listed: None} if listed else {}
    assert fetch(source("mirror", "set", files), tmp_path / "out", origin).files["link"]["bytes"] == 1
    (origin / "set/link").unlink()
    (origin / "set/link").symlink_to(tmp_path / "secret")
    with pytest.raises(DataError, match=r"link leads out of the mirror, to .*secret"):
        fetch(source("mirror", "set", files), tmp_path / "other", origin)
    (origin / "set/link").unlink()
    (origin / "away").symlink_to(tmp_path)
    with pytest.raises(DataError, match="leads out of the mirror"):
        fetch(source("mirror", "away", {"secret": None}), tmp_path / "other", origin)


def test_missing_files_folders_and_empty_sources_are_named(origin: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no file gone"):
        fetch(source("mirror", "set", {"gone": None}), tmp_path / "out", origin)
    with pytest.raises(DataError, match="no folder other"):
        fetch(source("mirror", "other"), tmp_path / "out", origin)
    (origin / "empty").mkdir()
    with pytest.raises(DataError, match="holds no file"):
        fetch(source("mirror", "empty"), tmp_path / "out", origin)


def test_shipped_files_come_from_the_project(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(origin)
    assert set(fetch(source("shipped", "set"), tmp_path / "out").files) == {"a.bin", "sub/b.txt"}
    with pytest.raises(DataError, match="not a folder of the project"):
        fetch(source("shipped", "../outside/set"), tmp_path / "out")


def test_https_checks_and_records(tmp_path: Path) -> None:
    with file_server(FileServer({"/rev/d/a.bin": BODY})) as server:
        entry = source("https", server.url, {"d/a.bin": DIGEST}, revision="rev")
        fetched = fetch(entry, tmp_path / "out")
        assert fetched == Fetched("rev", {"d/a.bin": {"sha256": DIGEST, "bytes": len(BODY)}})
        fetch(entry, tmp_path / "out")
        assert server.ranges == [None]  # an existing file with the right digest is not fetched again


def test_https_refuses_a_missing_file_and_an_unlisted_source(tmp_path: Path) -> None:
    with file_server(FileServer({})) as server:
        with pytest.raises(DataError, match="404"):
            fetch(source("https", server.url, {"a.bin": None}), tmp_path / "out")
        with pytest.raises(DataError, match="cannot be listed"):
            fetch(source("https", server.url), tmp_path / "out")


def test_a_store_is_listed_and_fetched(origin: Path, tmp_path: Path) -> None:
    fetched = fetch(source("s3", (origin / "set").as_uri()), tmp_path / "out")
    assert set(fetched.files) == {"a.bin", "sub/b.txt"}
