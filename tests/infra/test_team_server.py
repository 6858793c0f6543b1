"""A team's server as infra/compose describes it, from packages of this machine: PostgreSQL, Redis, three processes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from flows.local import processes
from infra.doctor import server as doctor
from tests.support.isolated import isolated

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "infra/requirements-server.lock"
AUTH = "admin:chosen"
_READY_S = 400.0
_FLOW = """
from prefect import flow, task

@task
def add(number):
    return number + 1

@flow
def count():
    return add(add(1))

count()
"""


@dataclass
class Team:
    """The addresses of two servers and of their database."""

    first: str
    second: str
    database: dict[str, str]
    programs: Path

    def client(self, url: str) -> httpx.Client:
        return httpx.Client(base_url=url, auth=("admin", "chosen"), timeout=60)

    def sql(self, text: str, database: str = "prefect") -> str:
        return self.program("psql", "--no-align", "--tuples-only", "--command", text, database).strip()

    def program(self, name: str, *words: str) -> str:
        done = subprocess.run(
            [self.programs / name, *words], env=self.database, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as handle:
        started = subprocess.Popen(
            command, stdout=handle, stderr=handle, env=environment, cwd=log.parent, start_new_session=True
        )
        try:
            yield
            assert started.poll() is None, log.read_text()
        finally:
            processes.end([started.pid])
            started.wait()


def wait(what: str, ready: Callable[[], Any], seconds: float = _READY_S) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if found := ready():
                return found
        except (httpx.HTTPError, OSError):
            pass
        time.sleep(0.5)
    raise AssertionError(f"{what}: nothing after {seconds:.0f} s")


def responds(url: str) -> bool:
    return httpx.get(f"{url}/health").status_code == 200


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found and not shutil.which("initdb"):
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    if not shutil.which("redis-server"):
        pytest.skip("Redis is not installed; on Debian: apt-get install redis-server")
    return found[-1].parent if found else Path(str(shutil.which("initdb"))).parent


@pytest.fixture(scope="module")
def team(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Started with the commands and settings of compose.yaml, with other hosts and ports."""
    logs = tmp_path_factory.mktemp("team")
    ports = {name: free_port() for name in ("database", "redis", "first", "second")}
    addresses = {name: f"http://127.0.0.1:{ports[name]}/api" for name in ("first", "second")}
    services = yaml.safe_load((ROOT / "infra/compose/compose.yaml").read_text())["services"]
    with ExitStack() as stack:
        database = stack.enter_context(postgres(programs, ports["database"], logs))
        redis = [
            "redis-server",
            "--port",
            str(ports["redis"]),
            "--requirepass",
            "chosen",
            "--save",
            "",
            "--dir",
            str(logs),
        ]
        stack.enter_context(process(redis, logs / "redis.log", {**os.environ}))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PATHFINDER_"))}
        settings = {**kept, "PREFECT_HOME": str(logs), **local(services["server"]["environment"], ports)}

        def start(name: str, *more: str) -> None:
            command = [word for word in services[name]["command"] if word not in ("--host", "0.0.0.0")]  # noqa: S104
            label = "-".join([name, *more[-1:]])
            stack.enter_context(process(isolated(LOCK, [*command, *more]), logs / f"{label}.log", settings))

        migrate = subprocess.run(
            isolated(LOCK, services["migrate"]["command"]), env=settings, capture_output=True, text=True, check=False
        )
        assert migrate.returncode == 0, migrate.stderr
        for name in ("first", "second"):  # the first one fills the empty database alone
            start("server", "--port", str(ports[name]))
            wait(name, partial(responds, addresses[name]))
        start("services")
        yield Team(addresses["first"], addresses["second"], database, programs)


def local(settings: dict[str, str], ports: dict[str, int]) -> dict[str, str]:
    """The settings of Compose for this machine's ports."""
    found = {}
    for name, value in settings.items():
        text = value.replace("database:5432", f"127.0.0.1:{ports['database']}")
        text = text.replace("redis:6379", f"127.0.0.1:{ports['redis']}").replace("${PREFECT_AUTH:?}", AUTH)
        found[name] = re.sub(r"\$\{\w+:\?\}", "chosen", text)
    return found


@contextmanager
def postgres(programs: Path, port: int, logs: Path) -> Iterator[dict[str, str]]:
    """An empty database; its server does not run as root. Yields the variables of its clients."""
    root = os.geteuid() == 0
    prefix = ["runuser", "-u", "postgres", "--"] if root else []
    folder = Path(tempfile.mkdtemp())
    try:
        if root:
            shutil.chown(folder, "postgres")
        data = str(folder / "data")
        password = folder / "password"
        password.write_text("chosen")
        password.chmod(0o644)
        initdb = [*prefix, str(programs / "initdb"), "-D", data, "-U", "prefect", "-A", "scram-sha-256", "--no-sync"]
        subprocess.run([*initdb, f"--pwfile={password}"], check=True, capture_output=True)
        command = [str(programs / "postgres"), "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", str(folder)]
        clients = {
            **os.environ,
            "PGHOST": "127.0.0.1",
            "PGPORT": str(port),
            "PGUSER": "prefect",
            "PGPASSWORD": "chosen",
        }
        with process([*prefix, *command], logs / "postgres.log", {**os.environ}):
            create = [str(programs / "createdb"), "prefect"]
            wait("PostgreSQL", lambda: subprocess.run(create, env=clients, capture_output=True).returncode == 0, 60)
            yield clients
    finally:
        shutil.rmtree(folder)


@pytest.mark.team
def test_two_servers_share_runs_events_and_schedules(team: Team, tmp_path: Path) -> None:
    """A run that reports to one server is seen on the other; the services process its events and the schedules."""
    script = tmp_path / "count.py"
    script.write_text(_FLOW)
    settings = {"PREFECT_API_URL": team.second, "PREFECT_API_AUTH_STRING": AUTH, "PREFECT_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with team.client(team.first) as client:

        def post(path: str, **values: object) -> Any:
            return client.post(path, json=values).raise_for_status().json()

        assert [run["state_type"] for run in post("/flow_runs/filter")] == ["COMPLETED"]
        completed = {"event": {"name": ["prefect.flow-run.Completed"]}}
        wait("event", lambda: post("/events/filter", filter=completed)["total"] == 1, 120)
        wait("task runs", lambda: len(post("/task_runs/filter")) == 2, 120)
        flow = post("/flows/", name="count")["id"]
        post("/work_pools/", name="cpu", type="process")
        every_hour = [{"schedule": {"cron": "0 * * * *"}, "active": True}]
        post("/deployments/", name="hourly", flow_id=flow, work_pool_name="cpu", schedules=every_hour)
        scheduled = {"state": {"type": {"any_": ["SCHEDULED"]}}}
        wait("scheduled runs", lambda: len(post("/flow_runs/filter", flow_runs=scheduled)) > 1, 180)


@pytest.mark.team
def test_the_doctor_reads_a_server_that_wants_a_password(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", team.first)
    monkeypatch.delenv("PREFECT_API_AUTH_STRING", raising=False)
    assert "refuses with status 401" in doctor.findings(tmp_path)[0].line()
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", AUTH)
    lines = [finding.line() for finding in doctor.findings(tmp_path)]
    assert lines[0].endswith(": ok")
    assert lines[-1] == "pool       cpu has no worker: WRONG; prefect worker start --pool cpu"


@pytest.mark.team
def test_a_backup_restores_every_row(team: Team, tmp_path: Path) -> None:
    """With the commands of infra/compose/README.md."""
    page = (ROOT / "infra/compose/README.md").read_text()
    assert "pg_dump --format=custom" in page
    assert "pg_restore --exit-on-error --single-transaction" in page
    backup = tmp_path / "prefect.dump"
    team.program("pg_dump", "--format=custom", f"--file={backup}", "prefect")
    team.program("createdb", "restored")
    team.program("pg_restore", "--exit-on-error", "--single-transaction", "--dbname=restored", str(backup))
    tables = team.sql("select tablename from pg_tables where schemaname = 'public' order by 1").splitlines()
    assert len(tables) > 30
    counts = {table: team.sql(f'select count(*) from "{table}"', "restored") for table in tables}  # noqa: S608
    assert int(counts["flow_run"]) > 1
    assert counts["flow_run"] == team.sql("select count(*) from flow_run")
    assert counts["deployment"] == team.sql("select count(*) from deployment") != "0"


@pytest.mark.team
def test_the_page_leads_to_deployments(team: Team, tmp_path: Path) -> None:
    """The commands of "Deployments" in docs/operations.md, on these servers."""
    block = (ROOT / "docs/operations.md").read_text().partition("### Deployments")[2].partition("## ")[0]
    lines = [line.strip() for line in block.splitlines() if line.startswith("    ")]
    assert lines[0].startswith("export PREFECT_API_URL=")
    settings = {"PREFECT_API_URL": team.first, "PREFECT_API_AUTH_STRING": AUTH, "PREFECT_HOME": str(tmp_path)}
    for line in lines[2:]:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(line.removeprefix("python -m "))],
            cwd=ROOT,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    with team.client(team.second) as client:
        found = client.post("/deployments/filter", json={}).raise_for_status().json()
    declared = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert {item["name"] for item in declared} <= {item["name"] for item in found}
