"""The local server: a named one is used, one run at a time, and stale records of services are ignored."""

from __future__ import annotations

import fcntl
import json
import os
import runpy
import socket
import subprocess
import sys
import urllib.request
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import server, start
from flows.local import processes
from flows.local.lock import LOCK
from ground.io import DataError, TransientError
from tests.flows.conftest import ROOT, Project
from tests.support import warm
from tests.support.servers import JSONHandler, serving


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


def test_a_server_that_prefects_profile_names_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert server.named() is None
    with temporary_settings({PREFECT_API_URL: "http://team/api"}):
        assert server.named() == "http://team/api"


def test_a_database_that_is_set_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(server.DATABASE, raising=False)
    assert server.environment(tmp_path, "url")[server.DATABASE].startswith("sqlite+aiosqlite:///")
    monkeypatch.setenv(server.DATABASE, "postgresql+asyncpg://team@db/prefect")
    assert server.environment(tmp_path, "url")[server.DATABASE] == "postgresql+asyncpg://team@db/prefect"


def test_the_server_is_told_the_two_names_of_its_page(tmp_path: Path) -> None:
    found = server.environment(tmp_path, "http://127.0.0.1:4200/api")
    assert found["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == "http://127.0.0.1:4200,http://localhost:4200"


@pytest.mark.campaign
def test_pages_of_other_sites_cannot_use_the_server(tmp_path: Path) -> None:
    """The setting reaches Prefect: the application answers the preflight of its own page only."""
    code = """
from fastapi.testclient import TestClient
from prefect.server.api.server import create_app
client = TestClient(create_app(ephemeral=True))
for origin in ("http://127.0.0.1:4200", "http://localhost:4200", "http://attacker.example"):
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    print(client.options("/api/deployments/", headers=asked).headers.get("access-control-allow-origin"))
"""
    variables = os.environ | server.environment(tmp_path, "http://127.0.0.1:4200/api")
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["http://127.0.0.1:4200", "http://localhost:4200", "None"]


def test_a_named_server_does_not_lift_the_lock_of_the_folder(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    path = project.root / LOCK
    path.parent.mkdir(exist_ok=True)
    monkeypatch.chdir(project.root)
    monkeypatch.setattr(start, "load_graph", lambda *_: pytest.fail("the run has started"))
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another run is in progress in this folder"):
            start.start(())


WRITERS = """
import asyncio, sys
if sys.argv[1] == "ours":
    import flows.database
import sqlalchemy
from prefect.server.database.configurations import AioSqliteConfiguration

async def add(configuration, engine):
    async with await configuration.session(engine) as session, configuration.begin_transaction(session):
        await session.execute(sqlalchemy.text("select count(*) from numbers"))
        await asyncio.sleep(0.1)
        await session.execute(sqlalchemy.text("insert into numbers values (1)"))

async def main():
    configuration = AioSqliteConfiguration("sqlite+aiosqlite:///numbers.db")
    engine = await configuration.engine()
    async with engine.begin() as connection:
        await connection.execute(sqlalchemy.text("create table numbers (number)"))
    found = await asyncio.gather(*(add(configuration, engine) for _ in range(8)), return_exceptions=True)
    print(sum("database is locked" in str(error) for error in found), found.count(None))

asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["ours", "prefect"])
def test_writers_at_the_same_time_wait_for_each_other(tmp_path: Path, way: str) -> None:
    """With plain Prefect they fail; if that passes, flows/database.py is no longer needed."""
    command = [sys.executable, "-c", WRITERS, way]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PREFECT_HOME": str(tmp_path)}
    done = warm.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    locked, written = map(int, done.stdout.split())
    assert (locked == 0) == (way == "ours")
    assert locked + written == 8


def test_a_retention_that_is_set_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in server.RETENTION:
        monkeypatch.setenv(name, "mine")
    found = server.environment(tmp_path, "url")
    assert {found[name] for name in server.RETENTION} == {"mine"}


def test_a_server_gets_the_port_of_the_last_one_if_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert server._port(server.Service(1, 1, "", f"http://127.0.0.1:{port}/api")) != port
    assert server._port(server.Service(1, 1, "", f"http://127.0.0.1:{port}/api")) == port
    assert server._port(None) > 0


class Target(JSONHandler):
    """A server and proxy that answers with the target of the request, which is a whole address for a proxy."""

    def do_GET(self) -> None:
        self.send(200, self.path)


@pytest.mark.parametrize(
    ("users", "hosts"),
    [
        ({}, "127.0.0.1,localhost"),
        ({"no_proxy": "", "NO_PROXY": ".corp, 10.0.0.1"}, ".corp, 10.0.0.1,127.0.0.1,localhost"),
        ({"no_proxy": "127.0.0.1,localhost"}, "127.0.0.1,localhost"),
        ({"NO_PROXY": "*"}, None),
    ],
)
def test_a_server_on_this_machine_is_asked_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, users: dict[str, str], hosts: str | None
) -> None:
    """By httpx, Prefect's client and (``proxy_bypass``) Prefect's websockets; other servers are asked through it."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with serving(Target) as here, temporary_settings({PREFECT_API_URL: f"{here}/api"}):
        for name, value in (users | {"http_proxy": here}).items():
            monkeypatch.setenv(name, value)
        runpy.run_path(str(ROOT / "flows/__init__.py"))
        assert httpx.get(here).json() == "/"
        with get_client(sync_client=True) as client:
            assert client.api_version() == "/api/admin/version"
        assert urllib.request.proxy_bypass(here.removeprefix("http://"))
        if hosts is None:
            assert {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY")} == {"no_proxy": None} | users
            return
        assert httpx.get("http://elsewhere.example/").json() == "http://elsewhere.example/"
        assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == hosts


def test_a_service_is_identified_by_its_start_time(tmp_path: Path) -> None:
    started, place = processes.start_time(os.getpid()), processes.place(tmp_path)
    record(tmp_path, server.Service(os.getpid(), started, place))
    assert server.recorded(tmp_path, "worker") == server.Service(os.getpid(), started, place)
    path = record(tmp_path, server.Service(os.getpid(), started + 1, place))
    assert server.recorded(tmp_path, "worker") is None
    server.stop(tmp_path, "worker")  # this process has the number: it must not be ended
    assert not path.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_record_is_no_service(tmp_path: Path, text: str) -> None:
    record(tmp_path, server.Service(1, 1, "")).write_text(text)
    assert server.recorded(tmp_path, "worker") is None
    server.stop(tmp_path, "worker")


def test_a_server_that_does_not_respond_is_not_used(tmp_path: Path) -> None:
    started, place = processes.start_time(os.getpid()), processes.place(tmp_path)
    service = server.Service(os.getpid(), started, place, "http://127.0.0.1:9/api")
    record(tmp_path, service).rename(server.home(tmp_path) / "server.json")
    assert server.recorded(tmp_path, "server") is None


class Answer(JSONHandler):
    """A server that answers every request with the status that its path ends in."""

    def do_GET(self) -> None:
        self.send(int(self.path.split("/")[1]), None)

    def send(self, status: int, value: object, *_: object, **__: object) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (401, DataError, "refuses access .status 401.; set PREFECT_API_AUTH_STRING"),
        (500, TransientError, "fails .status 500.; see its log"),
        (404, DataError, "no Prefect API; correct PREFECT_API_URL, which ends in /api"),
        (200, DataError, "no Prefect API; correct PREFECT_API_URL, which ends in /api"),
    ],
)
def test_a_named_server_that_does_not_take_a_run_is_one_line(
    project: Project, monkeypatch: pytest.MonkeyPatch, status: int, error: type[Exception], message: str
) -> None:
    monkeypatch.chdir(project.root)
    with serving(Answer) as address:
        monkeypatch.setenv("PREFECT_API_URL", f"{address}/{status}")
        with temporary_settings({PREFECT_API_URL: f"{address}/{status}"}), pytest.raises(error, match=message):
            start.start(())


@pytest.mark.parametrize("cause", [DataError, KeyboardInterrupt])
def test_a_server_that_did_not_start_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: type[BaseException]
) -> None:
    """Either the server does not respond in time, or the run is interrupted while it waits."""

    def ready(service: server.Service) -> bool:
        if cause is KeyboardInterrupt:
            raise KeyboardInterrupt
        return False

    sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    monkeypatch.setattr("flows.local.processes.start", lambda *_: sleeper)
    monkeypatch.setattr(server, "_is_ready", ready)
    monkeypatch.setattr(server, "_READY_S", 0.0)
    with pytest.raises(cause):
        server.start_server(tmp_path)
    assert processes.start_time(sleeper.pid) == 0
    assert not list(server.home(tmp_path).glob("*.json"))
