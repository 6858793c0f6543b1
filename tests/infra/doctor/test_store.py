"""``make doctor`` on the remote and its clock, against real HTTP and S3 servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evidence.record.signing import KEY_FILE
from evidence.remote.publication import commit_manifest
from flows.local.storage import REMOTE, opened
from ground.io import DataError
from ground.remote import ENDPOINT
from infra.doctor import store
from tests.support.s3 import s3_bucket, s3_environment, s3_server
from tests.support.servers import JSONHandler, private_tls, serving


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(autouse=True)
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def lines(root: Path) -> list[str]:
    return [finding.line() for finding in store.findings(root)]


def test_the_local_folder_is_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REMOTE, raising=False)
    assert lines(tmp_path) == ["remote     the local folder .pathfinder/storage: ok"]


def test_a_key_that_cannot_sign_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "keys/signing.pem"))
    assert store.key().line().startswith("key        ")
    assert not store.key().is_wrong
    (tmp_path / "keys/signing-models.pem").write_text("no key")
    found = store.key()
    assert f"{tmp_path}/keys/signing-models.pem: cannot be used for signatures" in found.found
    assert found.remedy.startswith(f"set {KEY_FILE} to a file")


def test_a_store_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in s3_environment(endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(REMOTE, s3_bucket(endpoint))
    found = store.findings(tmp_path)
    assert [finding.what for finding in found] == ["remote", "writes", "clock"]
    assert not any(finding.is_wrong for finding in found)


def test_a_missing_bucket_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in s3_environment(endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(REMOTE, "s3://a-bucket-of-nobody")
    first = lines(tmp_path)[0]
    assert "NoSuchBucket" in first
    assert "WRONG; correct PATHFINDER_REMOTE" in first


def test_a_store_that_does_not_respond_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_environment("http://127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(REMOTE, "s3://bucket")
    found = lines(tmp_path)
    assert len(found) == 1
    assert "no answer from the store" in found[0]
    assert f"WRONG; correct {ENDPOINT} or start the store" in found[0]


def test_a_server_that_is_no_address_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REMOTE, "s3://bucket")
    monkeypatch.setenv(ENDPOINT, "store:9000")
    (line,) = lines(tmp_path)
    assert line.startswith(f"remote     store:9000: not a server's address; correct {ENDPOINT}, as in https://")


EMPTY = b"<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"


class Careless(JSONHandler):
    """A store that accepts ``If-None-Match`` and ignores it, an hour behind."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(time.time() - 3600)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_DELETE(self) -> None:
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        if "list-type=2" not in self.path:
            self.send(403, {})
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(EMPTY)))
        self.end_headers()
        self.wfile.write(EMPTY)


def test_ignored_conditions_and_a_wrong_clock_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Careless) as address:
        for name, value in s3_environment(address).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(REMOTE, "s3://bucket")
        found = store.findings(tmp_path)
    assert [finding.is_wrong for finding in found] == [False, True, True]
    assert "several writers create the same object: WRONG; use a store with conditional writes" in found[1].line()
    assert found[2].line().endswith("s ahead of the store: WRONG; set both clocks: timedatectl set-ntp true")


def test_the_clock_of_a_store_of_a_private_authority_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls, authority = private_tls(tmp_path)
    with serving(Careless, tls) as address:
        monkeypatch.setenv(ENDPOINT, address)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
        (found,) = store._clock("s3://bucket")
        assert " ahead of the store: WRONG" in found.line()
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "gone.pem"))
        assert store._clock("s3://bucket") == []


class Unconditional(Careless):
    """A store that lacks ``If-None-Match`` and says so, as S3's protocol has it."""

    def do_PUT(self) -> None:
        if "If-None-Match" not in self.headers:
            super().do_PUT()
            return
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send(501, {})


class Unlisted(Careless):
    """A store whose credentials may write and not list."""

    def do_GET(self) -> None:
        self.send(403, {})


@pytest.mark.parametrize(
    ("handler", "named"),
    [(Unconditional, "Use a store that has conditional writes (If-None-Match)"), (Unlisted, "(403)")],
)
def test_a_store_that_refuses_the_race_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: type[Careless], named: str
) -> None:
    with serving(handler) as address:
        for name, value in s3_environment(address).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(REMOTE, "s3://bucket")
        found = store.findings(tmp_path)
        with pytest.raises(DataError):
            commit_manifest(opened(tmp_path, "s3://bucket"), {})
    assert [finding.what for finding in found] == ["remote", "clock"]
    assert found[0].is_wrong
    assert named in found[0].line()
