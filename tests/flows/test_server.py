"""The local server: a named one is used, one run at a time, and stale records of services are ignored."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from flows import processes, server
from pathfinder.core.io import DataError


def record(root: Path, service: server.Service) -> Path:
    path = server.home(root) / "worker.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(service)))
    return path


def test_a_named_server_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
    with server.local_server(tmp_path) as url:
        assert url == "http://elsewhere/api"
    assert not list(tmp_path.iterdir())


def test_a_service_is_identified_by_its_start_time(tmp_path: Path) -> None:
    started = processes.start_time(os.getpid())
    record(tmp_path, server.Service(os.getpid(), started))
    assert server.recorded(tmp_path, "worker") == server.Service(os.getpid(), started)
    path = record(tmp_path, server.Service(os.getpid(), started + 1))
    assert server.recorded(tmp_path, "worker") is None
    server.stop(tmp_path, "worker")  # this process has the number: it must not be ended
    assert not path.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_record_is_no_service(tmp_path: Path, text: str) -> None:
    record(tmp_path, server.Service(1, 1)).write_text(text)
    assert server.recorded(tmp_path, "worker") is None
    server.stop(tmp_path, "worker")


def test_a_server_that_does_not_respond_is_not_used(tmp_path: Path) -> None:
    service = server.Service(os.getpid(), processes.start_time(os.getpid()), "http://127.0.0.1:9/api")
    record(tmp_path, service).rename(server.home(tmp_path) / "server.json")
    assert server.recorded(tmp_path, "server") is None


@pytest.mark.parametrize("cause", [DataError, KeyboardInterrupt])
def test_a_server_that_did_not_start_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: type[BaseException]
) -> None:
    """Either the server does not respond in time, or the run is interrupted while it waits."""

    def healthy(url: str) -> bool:
        if cause is KeyboardInterrupt:
            raise KeyboardInterrupt
        return False

    sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    monkeypatch.setattr("flows.processes.start", lambda *_: sleeper)
    monkeypatch.setattr(server, "_healthy", healthy)
    monkeypatch.setattr(server, "_READY_S", 0.0)
    with pytest.raises(cause):
        server.start_server(tmp_path)
    assert processes.start_time(sleeper.pid) == 0
    assert not list(server.home(tmp_path).glob("*.json"))
