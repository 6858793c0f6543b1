"""Deployments on a real server: up, a scheduled run, a crash of the server, two clones, lost runs, down."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows import processes, server
from flows.deployment.definition import clone_id
from tests.flows.conftest import ROOT, Project
from tests.flows.test_dvc import alive, wait_for

pytestmark = pytest.mark.slow
UP, DOWN = ("-m", "flows.deploy", "up"), ("-m", "flows.deploy", "down")
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class Deployed:
    """A project with its own server, deployed with a remote folder that only the first `up` was told about."""

    project: Project
    url: str
    remote: Path

    def post(self, path: str, **content: Any) -> Any:
        return httpx.post(f"{self.url}/{path}", json=content, timeout=60).json()

    def deployment(self, project: Project | None = None) -> dict[str, Any]:
        name = f"nightly-{clone_id((project or self.project).root)}"
        return dict(self.post("deployments/filter", deployments={"name": {"any_": [name]}})[0])

    def start_run(self) -> str:
        return str(self.post(f"deployments/{self.deployment()['id']}/create_flow_run")["id"])

    def ended(self, run: str, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found: dict[str, Any] = httpx.get(f"{self.url}/flow_runs/{run}", timeout=60).json()
            if found["state_type"] in FINAL:
                return found
            time.sleep(0.5)
        raise AssertionError(found)


def with_flow(project: Project) -> Project:
    shutil.copytree(ROOT / "flows", project.root / "flows", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "prefect.yaml", project.root)
    return project


@pytest.fixture(scope="module")
def deployed(make_project: Callable[[], Project], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    project, remote = with_flow(make_project()), tmp_path_factory.mktemp("remote")
    told = replace(project, environment={**project.environment, "PATHFINDER_REMOTE": str(remote)})
    try:
        assert "nightly-" in told.run(*UP)
        service = server.recorded(project.root, "server")
        assert service is not None
        yield Deployed(project, service.url, remote)
        worker = server.recorded(project.root, "worker")
        assert worker is not None
    finally:
        output = project.run(*DOWN)
    assert f"deleted: reproduce/nightly-{clone_id(project.root)}" in output
    assert not alive(worker.pid)
    assert not processes.owned(str(service.pid))
    assert "server: none" in project.run("-m", "flows.deploy", "status")


def test_the_schedule_is_inactive_and_the_remote_is_part_of_the_deployment(deployed: Deployed) -> None:
    found = deployed.deployment()
    assert [schedule["active"] for schedule in found["schedules"]] == [False]
    assert found["work_pool_name"] == f"pathfinder-{clone_id(deployed.project.root)}"
    assert found["job_variables"]["env"]["PATHFINDER_REMOTE"] == str(deployed.remote)
    assert deployed.post("flow_runs/filter") == []


def test_after_a_crash_of_the_server_up_restores_everything_and_a_scheduled_run_fires(deployed: Deployed) -> None:
    service = server.recorded(deployed.project.root, "server")
    assert service is not None
    os.killpg(service.pid, signal.SIGKILL)
    deployed.project.run(*UP, "--active", "--cron", "* * * * *")
    again = server.recorded(deployed.project.root, "server")
    assert again is not None
    assert (again.url, again.pid != service.pid) == (service.url, True)
    deadline = time.monotonic() + 300
    while not (runs := deployed.post("flow_runs/filter", flow_runs={"state": {"type": {"any_": ["COMPLETED"]}}})):
        assert time.monotonic() < deadline, deployed.post("flow_runs/filter")
        time.sleep(1)
    assert runs[-1]["auto_scheduled"]
    assert runs[-1]["name"] == f"nightly-{clone_id(deployed.project.root)}: all stages"
    assert (deployed.project.root / "out/total.txt").read_text() == "285\n"
    assert list(deployed.remote.glob("runs/*/*/*")), "the deployment, not the worker's shell, names the remote"
    assert not (deployed.project.root / ".pathfinder/storage").exists()


def test_up_again_keeps_the_schedule_and_inactive_switches_it_off(deployed: Deployed) -> None:
    deployed.project.run(*UP, "--active", "--cron", "30 4 1 1 *")
    deployed.project.run(*UP)
    kept = deployed.deployment()["schedules"]
    assert [(item["active"], item["schedule"]["cron"]) for item in kept] == [(True, "30 4 1 1 *")]
    deployed.project.run(*UP, "--inactive")
    kept = deployed.deployment()["schedules"]
    assert [(item["active"], item["schedule"]["cron"]) for item in kept] == [(False, "30 4 1 1 *")]


def test_two_clones_share_a_server(deployed: Deployed, make_project: Callable[[], Project]) -> None:
    other = with_flow(make_project())
    other = replace(other, environment={**other.environment, "PREFECT_API_URL": deployed.url})
    deployed.post("work_pools/", name="team", type="process", concurrency_limit=7)
    other.run(*UP)
    mine, theirs = deployed.deployment(), deployed.deployment(other)
    assert mine["id"] != theirs["id"]
    assert mine["work_pool_name"] != theirs["work_pool_name"]
    other.run(*DOWN)
    assert [item["name"] for item in deployed.post("deployments/filter")] == [mine["name"]]
    pools = {pool["name"]: pool["concurrency_limit"] for pool in deployed.post("work_pools/filter")}
    assert pools["team"] == 7
    assert {mine["work_pool_name"], "team"} == pools.keys()
    assert server.recorded(deployed.project.root, "server") is not None


def test_a_run_of_a_deployment_without_a_remote_is_refused(deployed: Deployed) -> None:
    found = deployed.deployment()
    url = f"{deployed.url}/deployments/{found['id']}"
    httpx.patch(url, json={"job_variables": {"env": {}}}, timeout=60).raise_for_status()
    run = deployed.ended(deployed.start_run(), 120)
    assert run["state_type"] == "FAILED"
    assert "does not say where results go: its job variables lack PATHFINDER_REMOTE" in run["state"]["message"]
    httpx.patch(url, json={"job_variables": found["job_variables"]}, timeout=60).raise_for_status()


def test_a_run_whose_machine_is_gone_ends_and_frees_its_slot(deployed: Deployed) -> None:
    project = deployed.project
    (project.root / "params.yaml").write_text("count: 6\n")
    project.trap("numbers", "pathlib.Path('pid.txt').write_text(f'{os.getpid()}\\n')\ntime.sleep(900)\n")
    run = deployed.start_run()
    stage = int(wait_for(project.root / "pid.txt", 200))
    flow = next(process.owner for process in processes.owned("") if process.pid == stage)
    worker = server.recorded(project.root, "worker")
    assert worker is not None
    for pid in (*_guardians(flow), worker.pid, *_with_parent(worker.pid), flow, stage):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    found = deployed.ended(run, 240)
    assert found["state_type"] == "CRASHED"
    assert "no heartbeat" in found["state"]["message"]
    assert time.monotonic() - begun < 180
    (project.root / "trap_numbers.py").unlink()
    project.run(*UP)
    assert deployed.ended(deployed.start_run(), 120)["state_type"] == "COMPLETED"


def _guardians(flow: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        if f"guard.guardian {flow}." in processes.command_of(int(path.name)):
            found.append(int(path.name))
    return found


def _with_parent(parent: int) -> list[int]:
    stats = {int(path.parent.name): path.read_text().rpartition(")")[2].split() for path in _stats()}
    children = [pid for pid, fields in stats.items() if fields[1] == str(parent)]
    return [*children, *(pid for child in children for pid in _with_parent(child))]


def _stats() -> Iterator[Path]:
    return (path for path in Path("/proc").glob("[0-9]*/stat") if path.exists())
