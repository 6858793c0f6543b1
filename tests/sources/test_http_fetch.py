from __future__ import annotations

import contextlib
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest

from ground.io import DataError, TransientError
from pathfinder.core.params import Download
from pathfinder.sources.http_fetch import fetch_file, pause
from tests.support.servers import FileServer, file_server, serving

BODY = bytes(range(256)) * 5000


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the fetcher would have waited."""
    seconds: list[float] = []
    monkeypatch.setattr("pathfinder.sources.http_fetch.time.sleep", seconds.append)
    return seconds


def fetch(url: str, folder: Path, retries: int = 0) -> Path:
    settings = Download(world="data", retries=retries, timeout_s=5.0, sources=[])
    fetch_file(url, folder / "a.bin", folder / ".partial", settings)
    return folder / "a.bin"


def test_a_download_that_was_cut_off_is_resumed(tmp_path: Path, waits: list[float]) -> None:
    with file_server(FileServer({"/a.bin": BODY}, cuts=[1000, 700_000], statuses=[503])) as server:
        target = fetch(f"{server.url}/a.bin", tmp_path, retries=3)
        assert server.ranges == [None, None, "bytes=1000-", "bytes=700000-"]
    assert target.read_bytes() == BODY
    assert len(waits) == 3
    assert all(0 < wait <= 3 for wait in waits)
    assert list((tmp_path / ".partial").iterdir()) == []


def test_the_next_run_resumes_and_starts_again_if_the_file_changed(tmp_path: Path) -> None:
    with file_server(FileServer({"/a.bin": BODY}, cuts=[1000, 1000])) as server:
        url = f"{server.url}/a.bin"
        with pytest.raises(TransientError, match="same command to resume"):
            fetch(url, tmp_path)
        server.files["/a.bin"] = changed = BODY[::-1]
        with pytest.raises(TransientError):
            fetch(url, tmp_path)
        assert not (tmp_path / "a.bin").exists()
        target = fetch(url, tmp_path)
        assert server.ranges == [None, "bytes=1000-", "bytes=1000-"]
    assert target.read_bytes() == changed


def test_a_part_that_misses_no_byte_is_fetched_again(tmp_path: Path, waits: list[float]) -> None:
    with file_server(FileServer({"/a.bin": BODY}, cuts=[1000])) as server:
        with pytest.raises(TransientError):
            fetch(f"{server.url}/a.bin", tmp_path)
        server.statuses = [416]
        assert fetch(f"{server.url}/a.bin", tmp_path, retries=1).read_bytes() == BODY
        assert server.ranges == [None, "bytes=1000-", None]
    assert len(waits) == 1


def test_a_refusal_is_not_retried(tmp_path: Path, waits: list[float]) -> None:
    with file_server(FileServer({})) as server:
        with pytest.raises(DataError, match=r"404 Not Found; correct download\.sources"):
            fetch(f"{server.url}/a.bin", tmp_path, retries=3)
        assert len(server.ranges) == 1
    assert waits == []


def test_a_server_that_does_not_answer_is_transient(tmp_path: Path, waits: list[float]) -> None:
    with file_server(FileServer({})) as server:
        url = f"{server.url}/a.bin"
    with pytest.raises(TransientError, match="3 attempts"):
        fetch(url, tmp_path, retries=2)
    assert len(waits) == 2


def test_a_time_that_is_no_number_does_not_end_the_retries(waits: list[float]) -> None:
    pause("503", 0, 1, retry_after="²")
    assert 0 < waits[0] < 1


@pytest.mark.parametrize("url", ["file:///etc/passwd", "https:///a.bin", "https://host:port/a.bin", "a.bin"])
def test_other_addresses_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match=r"; correct download\.sources"):
        fetch(url, tmp_path, retries=1)


def test_a_full_disk_is_named_before_the_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=(1 << 30) + len(BODY) - 1))
    with file_server(FileServer({"/a.bin": BODY})) as server, pytest.raises(DataError, match=r"has 1\.0 GiB free"):
        fetch(f"{server.url}/a.bin", tmp_path, retries=1)
    assert not list((tmp_path / ".partial").glob("*.part"))


def test_a_body_without_a_length_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                while True:
                    self.wfile.write(BODY)

        def log_message(self, format: str, *args: object) -> None:
            pass

    def usage(_: Path) -> SimpleNamespace:
        written = sum(path.stat().st_size for path in (tmp_path / ".partial").glob("*.part"))
        return SimpleNamespace(free=(1 << 30) + 3 * len(BODY) - written)

    monkeypatch.setattr("shutil.disk_usage", usage)
    with serving(Endless) as url, pytest.raises(DataError, match="free some"):
        fetch(f"{url}/a.bin", tmp_path)
