from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pathfinder.core.io import DataError, write_json
from pathfinder.core.params import Download, Source
from pathfinder.sources.catalogue import MIRROR_VARIABLE, Fetched, fetch_source
from tests.support.servers import FileServer, file_server

BODY = bytes(range(256)) * 5000
DIGEST = hashlib.sha256(BODY).hexdigest()


def source(kind: str, location: str, files: dict[str, str | None] | None = None, **more: Any) -> Source:
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


HUB = """
import json, sys
from pathlib import Path
from pathfinder.core.params import Download, Source
from pathfinder.sources.catalogue import fetch_source
source = Source.model_validate(json.loads(sys.argv[1]))
download = Download(world="data", retries=1, timeout_s=5.0, sources=[source])
fetched = fetch_source(source, Path(sys.argv[2]), download)
print(json.dumps({"revision": fetched.revision, "files": fetched.files}))
"""
COMMIT = "c" * 40


def from_hub(server: FileServer, entry: Source, folder: Path) -> subprocess.CompletedProcess[str]:
    settings = {
        "HF_ENDPOINT": server.url,
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_XET": "1",
    }
    command = [sys.executable, "-c", HUB, entry.model_dump_json(), str(folder / "out")]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)


def test_hub_files_are_fetched_at_one_commit(tmp_path: Path) -> None:
    info = {"id": "o/n", "sha": COMMIT, "siblings": [{"rfilename": "d/a.bin"}, {"rfilename": ".gitattributes"}]}
    described = json.dumps(info).encode()
    tree = json.dumps([{"type": "file", "path": "d/a.bin", "size": len(BODY), "oid": "1"}]).encode()
    files = {
        "/api/datasets/o/n/revision/main": described,
        f"/api/datasets/o/n/revision/{COMMIT}": described,
        f"/api/datasets/o/n/tree/{COMMIT}?recursive=true&expand=false": tree,
        f"/api/datasets/o/n/tree/{COMMIT}?recursive=True&expand=False": tree,
        f"/datasets/o/n/resolve/{COMMIT}/d/a.bin": BODY,
    }
    with file_server(FileServer(files)) as server:
        done = from_hub(server, source("hub", "datasets/o/n", revision="main"), tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {
            "revision": COMMIT,
            "files": {"d/a.bin": {"sha256": DIGEST, "bytes": len(BODY)}},
        }
        missing = from_hub(server, source("hub", "datasets/o/gone", revision="main"), tmp_path)
    assert "DataError" in missing.stderr
    assert "correct download.sources" in missing.stderr


def test_a_hub_model_is_named_by_its_commit_and_not_copied(tmp_path: Path) -> None:
    described = json.dumps({"id": "o/n", "sha": COMMIT, "siblings": []}).encode()
    with file_server(FileServer({"/api/models/o/n/revision/main": described})) as server:
        done = from_hub(server, source("hub", "o/n", name="models/judge", revision="main"), tmp_path)
        assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "hub.json").read_text()) == {"repo": "o/n", "revision": COMMIT}
    fetched = fetch(source("hub", "o/n", name="models/judge", revision=COMMIT), tmp_path / "pinned")
    assert fetched.revision == COMMIT
    write_json(tmp_path / "same.json", {"repo": "o/n", "revision": COMMIT})
    assert (tmp_path / "pinned" / "hub.json").read_bytes() == (tmp_path / "same.json").read_bytes()
