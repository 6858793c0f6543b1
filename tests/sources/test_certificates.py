"""A server of a private authority: each client names the variable that trusts it, at once, and then reaches it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import close_session

from extras.publish.client import upload
from extras.publish.folder import Repository
from ground.io import DataError, TransientError
from ground.remote import open_store
from ground.settings import certificate_fault
from pathfinder.core.params import Download, Source
from pathfinder.engines.openai_client import connect
from pathfinder.sources.http_fetch import fetch_file
from pathfinder.sources.hub import look_up
from tests.support.servers import JSONHandler, private_tls, serving

Client = Callable[[str, Path], object]
RETRIES = 2


def settings() -> Download:
    return Download(world="data", retries=RETRIES, timeout_s=5.0, sources=[])


def fetch(url: str, folder: Path) -> None:
    fetch_file(f"{url}/a.bin", folder / "a.bin", folder / ".partial", settings())


def ask_judge(url: str, _: Path) -> None:
    connect([f"{url}/v1"], 1, 5.0, RETRIES)


def ask_hub(_: str, __: Path) -> None:
    words = {"name": "models/base", "kind": "hub", "location": "owner/base", "revision": "main", "licence": "x"}
    look_up(Source.model_validate({**words, "files": {}}), settings())


def publish(_: str, folder: Path) -> None:
    upload(Repository("model", folder), "owner/base")


def list_store(url: str, _: Path) -> None:
    open_store("s3://bucket/folder", url).keys()


@pytest.mark.parametrize(
    ("client", "variable"),
    [
        (fetch, "SSL_CERT_FILE"),
        (ask_judge, "SSL_CERT_FILE"),
        (ask_hub, "SSL_CERT_FILE"),
        (publish, "SSL_CERT_FILE"),
        (list_store, "AWS_CA_BUNDLE"),
    ],
)
def test_a_private_authority_is_named_at_once(
    client: Client, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[str] = []

    class Server(JSONHandler):
        def do_GET(self) -> None:
            reached.append(self.path)
            self.send(404, {"error": {"message": "absent"}})

        do_POST = do_HEAD = do_GET

    def unexpected(*_: object) -> None:
        pytest.fail("waited for another attempt")

    monkeypatch.setattr("pathfinder.sources.http_fetch.pause", unexpected)
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "HF_TOKEN": "t"}.items():
        monkeypatch.setenv(name, value)
    tls, authority = private_tls(tmp_path)
    with serving(Server, tls) as url:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        close_session()  # the Hub's client reads the authorities once
        with pytest.raises(DataError, match=rf"is not trusted \(self-signed certificate\); set {variable} "):
            client(url, tmp_path)
        assert reached == []
        monkeypatch.setenv(variable, str(authority))
        close_session()
        with pytest.raises((DataError, TransientError)) as caught:
            client(url, tmp_path)
        assert reached, caught.value
        close_session()


def test_other_failures_are_no_certificates_fault() -> None:
    assert certificate_fault(ConnectionResetError("CERTIFICATE_VERIFY_FAILED")) == ""
    assert certificate_fault(ssl.SSLError("wrong version number")) == ""
