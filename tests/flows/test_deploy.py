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
from tests.flows.test_branch import git
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
        for _ in range(120):
            answer = httpx.post(f"{self.url}/{path}", json=content, timeout=60)
            if answer.status_code != 503:  # the database is locked for a moment; Prefect's client tries again too
                break
            time.sleep(0.5)
        assert answer.is_success, answer.text
        return answer.json()

    def deployment(self, kind: str, project: Project | None = None) -> dict[str, Any]:
        return self.named(f"{kind}-{clone_id((project or self.project).root)}")

    def named(self, name: str) -> dict[str, Any]:
        return dict(self.post("deployments/filter", deployments={"name": {"any_": [name]}})[0])

    def start_run(self, deployment: dict[str, Any]) -> str:
        return str(self.post(f"deployments/{deployment['id']}/create_flow_run")["id"])

    def ended(self, run: str, seconds: float = 600.0) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found: dict[str, Any] = httpx.get(f"{self.url}/flow_runs/{run}", timeout=60).json()
            if found["state_type"] in FINAL:
                return found
            time.sleep(0.5)
        raise AssertionError(found)


def with_flow(project: Project) -> Project:
    shutil.copytree(ROOT / "flows", project.root / "flows", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "infra/profiles", project.root / "infra/profiles")
    shutil.copy(ROOT / "prefect.yaml", project.root)
    (project.root / ".gitignore").write_text("__pycache__/\n/out/\n/metrics/\n/.pathfinder/\n/ran.txt\n")
    (project.root / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")
    git(project.root, "checkout", "-q", "-b", "main")
    git(project.root, "add", ".")
    git(project.root, "commit", "-qm", "A small project")
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
    assert f"deleted: nightly/nightly-{clone_id(project.root)}, reproduce/reproduce-" in output
    assert not alive(worker.pid)
    assert not processes.owned(str(service.pid))
    assert "server: none" in project.run("-m", "flows.deploy", "status")


def test_the_schedule_is_inactive_and_the_remote_is_part_of_the_deployment(deployed: Deployed) -> None:
    found = deployed.deployment("nightly")
    assert [schedule["active"] for schedule in found["schedules"]] == [False]
    assert found["work_pool_name"] == f"pathfinder-{clone_id(deployed.project.root)}"
    assert found["job_variables"]["env"]["PATHFINDER_REMOTE"] == str(deployed.remote)
    assert deployed.post("flow_runs/filter") == []


def test_after_a_crash_of_the_server_up_restores_everything_and_a_scheduled_run_fires(deployed: Deployed) -> None:
    root = deployed.project.root
    service = server.recorded(root, "server")
    assert service is not None
    os.killpg(service.pid, signal.SIGKILL)
    deployed.project.run(*UP, "--active", "--cron", "* * * * *")
    again = server.recorded(root, "server")
    assert again is not None
    assert (again.url, again.pid != service.pid) == (service.url, True)
    deadline = time.monotonic() + 300
    while not (runs := deployed.post("flow_runs/filter", flow_runs={"name": {"any_": ["nightly of main"]}})):
        assert time.monotonic() < deadline, deployed.post("flow_runs/filter")
        time.sleep(1)
    schedule = deployed.deployment("nightly")["schedules"][0]
    url = f"{deployed.url}/deployments/{schedule['deployment_id']}/schedules/{schedule['id']}"
    httpx.patch(url, json={"active": False}, timeout=60).raise_for_status()
    runs = [deployed.ended(runs[0]["id"])]
    assert (runs[0]["state_type"], runs[0]["auto_scheduled"]) == ("COMPLETED", True), runs[0]["state"]
    (branch,) = [line.strip() for line in git(root, "branch", "--list", "runs/*").splitlines()]
    assert branch.endswith(git(root, "rev-parse", "HEAD")[:8])
    assert git(root, "log", "-1", "--format=%(trailers:key=Flow-Run,valueonly)", branch).strip() == runs[0]["id"]
    assert "metrics/odd.json: count 5" in git(root, "log", "-1", "--format=%B", branch)
    assert '"deep.sum": 165' in git(root, "show", f"{branch}:results.json")
    assert "square@odd" in git(root, "show", f"{branch}:dvc.lock")
    assert not (root / "dvc.lock").exists(), "the working folder is not touched"
    assert list(deployed.remote.glob("runs/*/*/*")), "the deployment, not the worker's shell, names the remote"
    second = deployed.ended(deployed.start_run(deployed.deployment("nightly")))
    assert second["state"]["message"] == f"nothing has changed since {branch}; no branch was made"


def test_prefect_deploys_all_from_the_file_and_a_run_takes_its_code_from_git(
    deployed: Deployed, tmp_path: Path
) -> None:
    origin, remote = tmp_path / "origin.git", tmp_path / "bucket"
    git(
        tmp_path,
        "clone",
        "-q",
        "--bare",
        "--branch",
        "main",
        "--single-branch",
        str(deployed.project.root),
        str(origin),
    )
    project = replace(
        deployed.project, environment={**deployed.project.environment, **server.environment(tmp_path, deployed.url)}
    )
    prefect = ("-m", "prefect", "--no-prompt")
    project.run(*prefect, "work-pool", "create", "pathfinder", "--type", "process")
    variables = {"repository": origin.as_uri(), "remote": str(remote), "folder": str(deployed.project.root)}
    for name, value in variables.items():
        project.run(*prefect, "variable", "set", f"pathfinder_{name}", value)
    project.run(*prefect, "deploy", "--all")
    found = deployed.named("nightly")
    kinds = ("nightly", "reproduce", "audit")
    schemas = [deployed.named(kind)["parameter_openapi_schema"]["properties"] for kind in kinds]
    described = schemas[0]
    assert all(item.get("description") for kind in schemas for item in kind.values()), schemas
    assert "quickstart" in described["profile"]["enum"]
    assert described["force"]["type"] == "boolean"
    assert all(
        item.get("description")
        for item in deployed.named("reproduce")["parameter_openapi_schema"]["properties"].values()
    )
    run = deployed.start_run(found)
    project.run(*prefect, "worker", "start", "--pool", "pathfinder", "--run-once")
    assert deployed.ended(run)["state"]["message"].startswith("results are in branch runs/")
    assert "runs/" in git(origin, "branch", "--list", "runs/*")
    assert list(remote.glob("runs/*/*/*"))
    for name in kinds:
        httpx.delete(f"{deployed.url}/deployments/{deployed.named(name)['id']}", timeout=60).raise_for_status()
    httpx.delete(f"{deployed.url}/work_pools/pathfinder", timeout=60).raise_for_status()


def test_up_again_keeps_the_schedule_and_inactive_switches_it_off(deployed: Deployed) -> None:
    deployed.project.run(*UP, "--active", "--cron", "30 4 1 1 *")
    deployed.project.run(*UP)
    kept = deployed.deployment("nightly")["schedules"]
    assert [(item["active"], item["schedule"]["cron"]) for item in kept] == [(True, "30 4 1 1 *")]
    deployed.project.run(*UP, "--inactive")
    kept = deployed.deployment("nightly")["schedules"]
    assert [(item["active"], item["schedule"]["cron"]) for item in kept] == [(False, "30 4 1 1 *")]


def test_two_clones_share_a_server(deployed: Deployed, make_project: Callable[[], Project]) -> None:
    other = with_flow(make_project())
    other = replace(other, environment={**other.environment, "PREFECT_API_URL": deployed.url})
    deployed.post("work_pools/", name="team", type="process", concurrency_limit=7)
    other.run(*UP)
    mine, theirs = deployed.deployment("nightly"), deployed.deployment("nightly", other)
    assert mine["id"] != theirs["id"]
    assert mine["work_pool_name"] != theirs["work_pool_name"]
    other.run(*DOWN)
    own = clone_id(deployed.project.root)
    assert {item["name"] for item in deployed.post("deployments/filter")} == {
        f"{kind}-{own}" for kind in ("nightly", "reproduce", "audit")
    }
    pools = {pool["name"]: pool["concurrency_limit"] for pool in deployed.post("work_pools/filter")}
    assert pools["team"] == 7
    assert {mine["work_pool_name"], "team"} == pools.keys()
    assert server.recorded(deployed.project.root, "server") is not None


def test_a_run_of_a_deployment_without_a_remote_is_refused(deployed: Deployed) -> None:
    found = deployed.deployment("reproduce")
    url = f"{deployed.url}/deployments/{found['id']}"
    httpx.patch(url, json={"job_variables": {"env": {}}}, timeout=60).raise_for_status()
    run = deployed.ended(deployed.start_run(deployed.deployment("reproduce")))
    assert run["state_type"] == "FAILED"
    assert "does not say where results go: its job variables lack PATHFINDER_REMOTE" in run["state"]["message"]
    httpx.patch(url, json={"job_variables": found["job_variables"]}, timeout=60).raise_for_status()


def test_the_audit_fails_on_a_changed_byte(deployed: Deployed) -> None:
    root, audit = deployed.project.root, deployed.deployment("audit")
    run = deployed.ended(deployed.start_run(deployed.deployment("reproduce")))
    assert run["state_type"] == "COMPLETED", run["state"]
    found = deployed.ended(deployed.start_run(audit))
    assert (found["state_type"], found["name"]) == ("COMPLETED", "check"), found["state"]
    (root / "out/total.txt").write_text("286\n")
    found = deployed.ended(deployed.start_run(audit))
    assert found["state_type"] == "FAILED"
    assert "out/total.txt" in found["state"]["message"]
    artifact = deployed.post("artifacts/latest/filter", artifacts={"key": {"any_": ["audit"]}})[0]
    assert "out/total.txt" in artifact["data"]


def test_a_run_whose_machine_is_gone_ends_and_frees_its_slot(deployed: Deployed) -> None:
    project = deployed.project
    (project.root / "params.yaml").write_text("count: 6\n")
    project.trap("numbers", "pathlib.Path('pid.txt').write_text(f'{os.getpid()}\\n')\ntime.sleep(900)\n")
    run = deployed.start_run(deployed.deployment("reproduce"))
    stage = int(wait_for(project.root / "pid.txt", 200))
    flow = next(process.owner for process in processes.owned("") if process.pid == stage)
    worker = server.recorded(project.root, "worker")
    assert worker is not None
    for pid in (*_guardians(flow), worker.pid, *_with_parent(worker.pid), flow, stage):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    found = deployed.ended(run)
    assert found["state_type"] == "CRASHED"
    assert "no heartbeat" in found["state"]["message"]
    assert time.monotonic() - begun < 180
    (project.root / "trap_numbers.py").unlink()
    project.run(*UP)
    assert deployed.ended(deployed.start_run(deployed.deployment("reproduce")))["state_type"] == "COMPLETED"


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


def test_a_server_that_does_not_respond_is_one_line(project: Project) -> None:
    shutil.copy(ROOT / "prefect.yaml", project.root)
    away = replace(project, environment={**project.environment, "PREFECT_API_URL": "http://127.0.0.1:9/api"})
    for command in (UP, DOWN):
        output = away.run(*command, code=1)
        assert "http://127.0.0.1:9/api: the Prefect server does not respond" in output
        assert "Traceback" not in output
