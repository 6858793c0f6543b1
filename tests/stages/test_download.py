from __future__ import annotations

import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from ground.io import DataError, TransientError, read_json
from stages.download import main
from tests.support.servers import FileServer, file_server
from tests.support.stage_inputs import write_params

BODY = b"0123456789" * 1000
DIGEST = hashlib.sha256(BODY).hexdigest()
RAW = Path("artifacts/raw")


def source(name: str, kind: str, location: str, files: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "kind": kind, "location": location, "revision": None, "licence": "MIT", "files": files}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATHFINDER_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setattr("pathfinder.sources.http_fetch.time.sleep", lambda _: None)
    (tmp_path / "mirror" / "search").mkdir(parents=True)
    (tmp_path / "mirror" / "search" / "math.jsonl").write_bytes(b"{}\n")
    (tmp_path / "data" / "base").mkdir(parents=True)
    (tmp_path / "data" / "base" / "config.json").write_bytes(b"{}")
    return tmp_path


def catalogue(folder: Path, url: str, digest: str | None = DIGEST) -> None:
    sources = [
        source("search", "mirror", "search", {}),
        source("models/base", "shipped", "data/base", {}),
        source("prm800k", "https", url, {"a.bin": digest}),
    ]
    write_params(folder, download={"retries": 0, "timeout_s": 5.0, "sources": sources})


def test_every_source_is_stored_under_its_name_with_a_manifest(project: Path) -> None:
    with file_server(FileServer({"/a.bin": BODY})) as server:
        catalogue(project, server.url)
        main()
        manifest = read_json(RAW / "manifest.json")
        first = (RAW / "manifest.json").read_bytes()
        main()
        assert (RAW / "manifest.json").read_bytes() == first
    assert (RAW / "models" / "base" / "config.json").read_bytes() == b"{}"
    assert manifest["prm800k"]["files"] == {"a.bin": {"sha256": DIGEST, "bytes": len(BODY)}}
    assert (manifest["search"]["kind"], manifest["search"]["licence"]) == ("mirror", "MIT")
    assert str(project) not in first.decode()
    listed = {f"{name}/{file}" for name, entry in manifest.items() for file in entry["files"]}
    there = {path.relative_to(RAW).as_posix() for path in RAW.rglob("*") if path.is_file()}
    assert there == listed | {"manifest.json"}
    assert not Path(".pathfinder/download").exists()


def test_a_network_failure_keeps_the_received_part_for_the_next_run(project: Path) -> None:
    with file_server(FileServer({"/a.bin": BODY}, cuts=[4000])) as server:
        catalogue(project, server.url)
        with pytest.raises(TransientError):
            main()
        assert not RAW.exists()
        main()
        assert server.ranges == [None, "bytes=4000-"]
    assert (RAW / "prm800k" / "a.bin").read_bytes() == BODY


def test_a_corrected_path_is_fetched_although_the_wrong_file_arrived(project: Path) -> None:
    with file_server(FileServer({"/old": b"old", "/new": b"new"})) as server:
        for path, folder in (("old", "missing"), ("new", "search")):  # the first run fails after the first source
            files = {"a.bin": {"path": path, "sha256": None}}
            sources = [source("prm800k", "https", server.url, files), source("search", "mirror", folder, {})]
            write_params(project, download={"retries": 0, "timeout_s": 5.0, "sources": sources})
            with pytest.raises(DataError, match="no folder missing") if path == "old" else nullcontext():
                main()
    assert (RAW / "prm800k" / "a.bin").read_bytes() == b"new"


def test_a_wrong_digest_keeps_the_old_files(project: Path) -> None:
    with file_server(FileServer({"/a.bin": BODY})) as server:
        catalogue(project, server.url)
        main()
        catalogue(project, server.url, "0" * 64)
        with pytest.raises(DataError, match=r"a\.bin has sha256"):
            main()
    assert (RAW / "prm800k" / "a.bin").read_bytes() == BODY


def test_the_real_files_are_fetched_from_the_mirror(
    project: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATHFINDER_MIRROR", str(mirror))
    known = {"phase1_train.jsonl": "23a1a6d6619c486984608be379c28bf52f50b5420b4fbba30629270bdce511c8"}
    sources = [source("prm800k", "mirror", "prm800k", dict(known)), source("mistral", "mirror", "mistral", {})]
    write_params(project, download={"retries": 0, "timeout_s": 5.0, "sources": sources})
    main()
    manifest = read_json(RAW / "manifest.json")
    assert {name: entry["sha256"] for name, entry in manifest["prm800k"]["files"].items()} == known
    assert list(manifest["mistral"]["files"]) == ["math_shepherd_samples.jsonl"]


def test_a_listed_baseline_without_a_source_is_refused_before_any_transfer(project: Path) -> None:
    catalogue(project, "http://127.0.0.1:9")
    params = project / "params.yaml"
    params.write_text(params.read_text().replace("baselines: []", "baselines: [qwen-prm]"))
    with pytest.raises(DataError, match=r"download\.sources has no models/qwen-prm, which `baselines` lists"):
        main()
