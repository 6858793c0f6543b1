"""``make doctor`` on a Prefect server, which runs for this module: versions, access and work pools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_KEY, PREFECT_API_URL, temporary_settings

from flows import server as prefect_server
from flows.team.pools.table import FILE
from ground.io import DataError
from infra.doctor import server
from infra.doctor.finding import clock
from tests.support.servers import JSONHandler, private_tls, serving

STAGE = {"entrypoint": server.STAGE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that has a running server of its own."""
    root = tmp_path_factory.mktemp("doctor")
    prefect_server.start_server(root)
    try:
        yield root
    finally:
        prefect_server.stop(root, "server")


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))


def lines(root: Path) -> list[str]:
    return [finding.line() for finding in server.findings(root)]


def test_no_server_is_needed(tmp_path: Path) -> None:
    assert lines(tmp_path) == ["server     none is named, so each run starts its own: ok"]


@pytest.mark.team
def test_pools_that_deployments_use(folder: Path) -> None:
    assert [line.split()[0] for line in lines(folder)] == ["server", "clock", "pools"]
    running = prefect_server.recorded(folder, "server")
    assert running is not None
    with httpx.Client(base_url=running.url, timeout=60) as client:

        def post(path: str, **values: object) -> dict[str, str]:
            return dict(client.post(path, json=values).raise_for_status().json())

        flow = post("/flows/", name="f")["id"]
        for name in ("idle", "paused", "busy", "unused"):
            post("/work_pools/", name=name, type="process")
        client.patch("/work_pools/paused", json={"is_paused": True}).raise_for_status()
        client.post("/work_pools/busy/workers/heartbeat", json={"name": "w"}).raise_for_status()
        for name in ("idle", "paused", "busy"):
            post("/deployments/", name=name, flow_id=flow, work_pool_name=name)
        for name in ("cpu", "gpu"):
            post(
                "/deployments/", name=name, flow_id=flow, work_pool_name="busy" if name == "cpu" else "unused", **STAGE
            )
    assert lines(folder)[2:] == [
        "pool       busy has a worker: ok",
        "pool       idle has no worker: WRONG; prefect worker start --pool idle",
        "pool       paused is paused: WRONG; prefect work-pool resume paused",
    ]
    (folder / "dvc.yaml").write_text("stages: {train: {cmd: python -m stages.train}}\n")
    (folder / "infra").mkdir()
    (folder / FILE).write_text("stages:\n- {stage: train, pool: gpu}\n")
    assert lines(folder)[-1] == "pool       unused has no worker: WRONG; prefect worker start --pool unused"
    (folder / FILE).write_text("stages: 3\n")
    assert "unused" not in "".join(lines(folder)), "infra.doctor.worker names the fault of the table"
    assert "WRONG; prefect work-pool create gone" in server._pool("gone", None).line()


@pytest.mark.parametrize("is_launched", [False, True])
def test_a_pool_whose_stages_a_command_starts_needs_no_worker(tmp_path: Path, is_launched: bool) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        pool = {"name": "pathfinder-gpu", "is_paused": False, "status": "NOT_READY"}
        deployment = {"name": "gpu", "work_pool_name": "pathfinder-gpu", **STAGE}
        found = deployment if "deployments" in request.url.path else pool
        return httpx.Response(200, json=[] if json.loads(request.content)["offset"] else [found])

    (tmp_path / "dvc.yaml").write_text("stages: {train: {cmd: python -m stages.train}}\n")
    (tmp_path / "infra").mkdir()
    launch = "launch: {gpu: sh run.sh}\n" if is_launched else ""
    (tmp_path / FILE).write_text(f"stages:\n- {{stage: train, pool: gpu}}\n{launch}")
    with httpx.Client(base_url="http://server/api", transport=httpx.MockTransport(answer)) as client:
        (found,) = server.pools(client, tmp_path)
    assert found.is_wrong is not is_launched


def test_a_server_of_another_version_is_named() -> None:
    wrong = server.compare("3.7.0", "3.8.8", "http://server/api")
    assert wrong.line().endswith(
        "Prefect 3.7.0: WRONG; this environment has Prefect 3.8.8: install one version in both places"
    )


def test_a_server_of_a_private_authority_needs_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Server(JSONHandler):
        def do_GET(self) -> None:
            self.send(200, metadata.version("prefect"))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send(200, [])

    tls, authority = private_tls(tmp_path)
    with serving(Server, tls) as address:
        monkeypatch.setenv("PREFECT_API_URL", address)
        assert lines(tmp_path)[0].endswith("WRONG; set SSL_CERT_FILE to the certificate of its authority")
        with (
            temporary_settings({PREFECT_API_URL: address}),
            pytest.raises(DataError, match=r"not trusted \(.*\); set SSL"),
        ):
            prefect_server.require_answer(address)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert lines(tmp_path)[0].endswith(f"Prefect {metadata.version('prefect')}: ok")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
        assert "WRONG; " in lines(tmp_path)[0]


def test_a_server_that_does_not_respond_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert "http://127.0.0.1:9/api does not respond as a Prefect server" in lines(tmp_path)[0]
    assert "WRONG; start it (`make deploy`" in lines(tmp_path)[0]


def test_an_address_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://host:port/api")
    (line,) = lines(tmp_path)
    assert line.startswith("server     http://host:port/api: not a server's address; correct PREFECT_API_URL, as in ")


class Absent(JSONHandler):
    """A server of another kind, or Prefect's without /api in the address."""

    def do_GET(self) -> None:
        self.send(404, "")


def test_an_address_without_an_api_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Absent) as address:
        monkeypatch.setenv("PREFECT_API_URL", address)
        (line,) = lines(tmp_path)
    assert "404 Not Found" in line
    assert "\n" not in line


class Closed(JSONHandler):
    """A server that wants a password."""

    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization", "").startswith("Basic ")
        self.send(200 if allowed else 401, "0.1")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send(200, [])


def test_a_missing_password_is_named_and_a_given_one_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Closed) as address:
        monkeypatch.setenv("PREFECT_API_URL", address)
        assert lines(tmp_path)[0].endswith("refuses with status 401: WRONG; set PREFECT_API_AUTH_STRING=user:password")
        with temporary_settings({PREFECT_API_AUTH_STRING: "admin:secret"}):
            assert "Prefect 0.1: WRONG; this environment has Prefect" in lines(tmp_path)[0]


class Cloud(JSONHandler):
    """Prefect Cloud, which takes keys and does not tell its version."""

    def do_GET(self) -> None:
        self.send(404, "")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send(200 if self.headers["Authorization"] == "Bearer pnu_1" else 401, [])


def test_prefect_cloud_is_not_asked_for_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Cloud) as address:
        monkeypatch.setattr(server, "CLOUD", address)
        monkeypatch.setenv("PREFECT_API_URL", f"{address}/accounts/1/workspaces/2")
        assert lines(tmp_path)[0].endswith("/2 refuses with status 401: WRONG; set PREFECT_API_KEY")
        with temporary_settings({PREFECT_API_KEY: "pnu_1"}):
            found = lines(tmp_path)
    assert found[0] == f"server     {address}/accounts/1/workspaces/2, Prefect Cloud: ok"
    assert [line.split()[0] for line in found] == ["server", "clock", "pools"]


@pytest.mark.parametrize(
    ("seconds", "wrong", "text"), [(0, False, "the server"), (-60, True, "s ahead of"), (90, True, "behind")]
)
def test_a_clock_that_differs_is_named(seconds: int, wrong: bool, text: str) -> None:
    finding = clock("server", format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True))
    assert finding.is_wrong is wrong
    assert text in finding.line()


def test_a_server_without_a_clock_is_no_problem() -> None:
    assert not clock("server", None).is_wrong
