"""A folder and S3 (moto) behave alike as stores; the log of manifests; the race for one key."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import boto3
import pytest

from evidence.remote.publication import commit_manifest, creates_exclusively
from flows.local.storage import preflight
from ground.io import DataError, TransientError
from ground.remote import ENDPOINT, KINDS, Kind, Store, from_dvc, open_store, to_dvc
from tests.support.s3 import s3_server
from tests.support.servers import serving
from tests.support.stalled import stalled_server


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "folder":
        return open_store(str(tmp_path / "store"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    address = request.getfixturevalue("endpoint")
    monkeypatch.setenv(ENDPOINT, address)
    bucket = "b" + hashlib.sha256(str(tmp_path).encode()).hexdigest()[:20]
    boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(Bucket=bucket)
    return open_store(f"s3://{bucket}/a/prefix")


def test_put_list_read_fetch_and_delete(store: Store, tmp_path: Path) -> None:
    store.put("b/two.txt", b"22")
    store.put("one.txt", b"1")
    assert store.keys() == open_store(store.url).keys() == ["b/two.txt", "one.txt"]
    assert store.keys("b/") == ["b/two.txt"]
    assert store.read("b/two.txt") == b"22"
    store.fetch("b/two.txt", tmp_path / "got" / "two.txt")
    assert (tmp_path / "got" / "two.txt").read_bytes() == b"22"
    store.delete("one.txt")
    store.delete("one.txt")
    assert store.keys() == ["b/two.txt"]


def test_a_listing_has_sizes_and_notices_a_replaced_object(store: Store) -> None:
    store.put("b/two.txt", b"22")
    store.put("bb/three.txt", b"333")
    (before,) = store.listed("b/")
    assert (before.key, before.size) == ("b/two.txt", 2)
    assert before.md5 in ("", hashlib.md5(b"22", usedforsecurity=False).hexdigest())
    assert b"".join(store.chunks("bb/three.txt")) == b"333"
    store.put("b/two.txt", b"33")
    (after,) = store.listed("b/")
    assert (after.size, after.stamp == before.stamp) == (2, False)
    assert [item.key for item in store.listed("b")] == ["b/two.txt", "bb/three.txt"]


def test_a_name_does_not_change_the_bytes(store: Store) -> None:
    store.put("a.gz", b"hello")
    assert store.read("a.gz") == b"hello"


def test_a_listing_leaves_out_what_is_renamed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, is_file = open_store(str(tmp_path)), Path.is_file
    store.put("object", b"")
    store.put("tmp1", b"")

    def renamed(path: Path) -> bool:
        found = is_file(path)
        if path.name == "tmp1":
            path.unlink()
        return found

    monkeypatch.setattr(Path, "is_file", renamed)
    assert store.keys() == ["object"]


def test_a_missing_object_is_named_and_leaves_no_file(store: Store, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing"):
        store.read("nothing")
    with pytest.raises(DataError, match="nothing"):
        store.fetch("nothing", tmp_path / "into" / "file")
    assert list((tmp_path / "into").iterdir()) == []


def test_create_never_replaces(store: Store) -> None:
    assert store.create("key", b"first")
    assert not store.create("key", b"second")
    assert store.read("key") == b"first"


def test_the_race_has_one_winner(store: Store) -> None:
    assert creates_exclusively(store, rounds=2)
    assert store.keys() == []


def test_what_a_killed_race_left_is_deleted_by_a_later_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create("probe/left", b"")
    assert creates_exclusively(store, rounds=1)
    assert store.keys() == ["probe/left"], "its race may still run"
    hour = time.time() + 3601
    monkeypatch.setattr("evidence.remote.publication.time.time", lambda: hour)
    assert creates_exclusively(store, rounds=1)
    assert store.keys() == []


def test_a_store_that_lets_every_writer_win_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    careless = open_store(str(tmp_path))

    def create(key: str, content: bytes) -> bool:
        careless.put(key, content)
        return True

    monkeypatch.setattr(careless, "create", create)
    assert not creates_exclusively(careless)
    assert not commit_manifest(careless, {"outs": 1}).exclusive


def test_the_log_numbers_manifests_and_does_not_repeat_the_newest(store: Store) -> None:
    first = commit_manifest(store, {"outs": {"a": 1}})
    again = commit_manifest(store, {"outs": {"a": 1}})
    second = commit_manifest(store, {"outs": {"a": 2}})
    assert (first.number, again, second.number) == (1, first, 2)
    assert hashlib.sha256(store.read(f"manifests/{second.manifest}.json")).hexdigest() == second.manifest
    previous = hashlib.sha256(store.read("log/00000001.json")).hexdigest()
    assert f'"previous":"{previous}"'.encode() in store.read("log/00000002.json")


def test_simultaneous_writers_all_enter_the_log(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        commits = list(pool.map(lambda run: commit_manifest(store, {"run": run}), range(4)))
    assert sorted(commit.number for commit in commits) == [1, 2, 3, 4]
    assert len(store.keys("log/")) == 4


@pytest.mark.parametrize("key", ["../outside", "/etc/passwd", "a/../../b"])
def test_a_key_cannot_leave_a_folder(tmp_path: Path, key: str) -> None:
    with pytest.raises(DataError, match="leaves"):
        open_store(str(tmp_path / "store")).put(key, b"")


@pytest.mark.parametrize("url", ["s3://", "gopher://x/y"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(DataError, match="s3://bucket/prefix"):
        open_store(url)


@pytest.mark.parametrize("url", ["s3://AKIA:sec/ret@bucket/runs", "ssh://me:sec@ret@bucket/runs"])
def test_an_address_with_a_password_is_refused_without_it(url: str) -> None:
    with pytest.raises(DataError, match=r"^[sh3]+://bucket/runs: an address must not name a password or a key"):
        open_store(url)


def test_a_kind_without_a_default_server_needs_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "r2", Kind("PATHFINDER_R2_ENDPOINT"))
    monkeypatch.delenv("PATHFINDER_R2_ENDPOINT", raising=False)
    for ask in (open_store, to_dvc):
        with pytest.raises(DataError, match=r"^PATHFINDER_R2_ENDPOINT is not set; set it to the address"):
            ask("r2://bucket/runs")
    assert from_dvc("s3://bucket/runs", "https://r2.example") == "s3://bucket/runs"
    assert to_dvc("s3://bucket/runs")["url"] == "s3://bucket/runs"
    monkeypatch.setenv("PATHFINDER_R2_ENDPOINT", "https://r2.example")
    assert to_dvc("r2://bucket/runs") == {"url": "s3://bucket/runs", "endpointurl": "https://r2.example"}
    assert from_dvc("s3://bucket/runs", "https://r2.example") == "r2://bucket/runs"


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_file_is_no_folder(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="/file: not a folder; name a folder, which may be new"):
        open_store(f"{scheme}{tmp_path}/file")
    assert open_store(f"{scheme}{tmp_path}/new").keys() == []


def test_no_answer_is_transient_and_no_credentials_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(DataError, match="credentials"):
        open_store("s3://bucket/x").read("key")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(TransientError, match="no answer"):
        open_store("s3://bucket/x").read("key")


def test_a_server_that_accepts_and_stalls_is_reported_within_half_a_minute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For a reader of the store and for the check before a run; ``AWS_MAX_ATTEMPTS`` prolongs neither."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "5")
    with stalled_server() as address, ThreadPoolExecutor(2) as pool:
        monkeypatch.setenv(ENDPOINT, address)
        start = time.monotonic()
        waiting: list[Future[Any]] = [
            pool.submit(lambda: open_store("s3://bucket/x").keys()),
            pool.submit(preflight, tmp_path, "s3://bucket/x"),
        ]
        for future in waiting:
            with pytest.raises(
                TransientError, match=f"no answer from the store .*; check {ENDPOINT}, the network"
            ) as error:
                future.result()
            assert len(str(error.value).splitlines()) == 1
    assert time.monotonic() - start < 30


def test_a_wrong_clock_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            text = "The difference between the request time and the current time is too large."
            body = f"<Error><Code>RequestTimeTooSkewed</Code><Message>{text}</Message></Error>".encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_HEAD = do_GET

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with serving(Handler) as address:
        monkeypatch.setenv(ENDPOINT, address)
        with pytest.raises(
            TransientError, match=r"the clocks of the store and of this machine differ .* set both by NTP"
        ):
            open_store("s3://bucket/x").keys()


def test_a_body_that_breaks_off_is_transient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with serving(Handler) as address:
        monkeypatch.setenv(ENDPOINT, address)
        store = open_store("s3://bucket/x")
        with pytest.raises(TransientError, match="no answer"):
            store.read("key")
        with pytest.raises(TransientError, match="no answer"):
            list(store.chunks("key"))
