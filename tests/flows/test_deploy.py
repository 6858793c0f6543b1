"""Deployments on a real server: the commands of docs/operations.md, a crash, two clones, lost runs, runs from git."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows import server
from flows.local import processes
from flows.team.deployment.definition import clone_id
from tests.flows.conftest import ROOT, Project
from tests.flows.test_branch import git
from tests.flows.test_operations import one_machine
from tests.flows.watch import alive, guardians_of, soon, wait_for
from tests.support.prefect_cli import prefect_commands

pytestmark = pytest.mark.slow
UP, STATUS, ACTIVE, _, INACTIVE, DOWN = one_machine()
KINDS = ("nightly", "reproduce", "audit", "garbage", "promote")
STAGE_POOLS = ("cpu", "gpu", "judge")
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
CLIENT = httpx.Client(timeout=60)
"""One for all requests: a new one reads the certificates of the machine."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """A project with its own server, deployed with a remote folder that only the first `up` was told about."""

    project: Project
    url: str
    remote: Path

    def post(self, path: str, **content: Any) -> Any:
        return self._answer("POST", path, json=content).json()

    def delete(self, path: str) -> None:
        self._answer("DELETE", path)

    def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        for _ in range(120):
            answer = CLIENT.request(method, f"{self.url}/{path}", **options)
            if answer.status_code != 503:  # the database is locked for a moment; Prefect's client tries again too
                break
            time.sleep(0.5)
        assert answer.is_success, answer.text
        return answer

    def deployment(self, kind: str, project: Project | None = None) -> dict[str, Any]:
        return self.named(f"{kind}-{clone_id((project or self.project).root)}")

    def named(self, name: str) -> dict[str, Any]:
        return dict(self.post("deployments/filter", deployments={"name": {"any_": [name]}})[0])

    def start_run(self, deployment: dict[str, Any], **parameters: Any) -> str:
        return str(self.post(f"deployments/{deployment['id']}/create_flow_run", parameters=parameters)["id"])

    def schedule(self) -> tuple[bool, str]:
        """The state of the nightly's schedule (active or not), and its times."""
        (found,) = self.deployment("nightly")["schedules"]
        return found["active"], found["schedule"]["cron"]

    def reschedule(self, cron: str) -> None:
        """Change the times of the nightly, as someone can on the server's page."""
        (found,) = self.deployment("nightly")["schedules"]
        url = f"{self.url}/deployments/{found['deployment_id']}/schedules/{found['id']}"
        httpx.patch(url, json={"schedule": {"cron": cron}}, timeout=60).raise_for_status()

    def ended(self, run: str, seconds: float = 600.0) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found: dict[str, Any] = CLIENT.get(f"{self.url}/flow_runs/{run}").json()
            if found["state_type"] in FINAL:
                return found
            time.sleep(0.5)
        raise AssertionError(found)


def with_flow(project: Project) -> Project:
    shutil.copytree(ROOT / "flows", project.root / "flows", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "infra/profiles", project.root / "infra/profiles")
    shutil.copy(ROOT / "prefect.yaml", project.root)
    (project.root / ".gitignore").write_text("__pycache__/\n/out/\n/.pathfinder/\n/ran.txt\n")
    (project.root / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")
    git(project.root, "checkout", "-q", "-b", "main")
    git(project.root, "add", ".")
    git(project.root, "commit", "-qm", "A small project")
    return project


@pytest.fixture(scope="module")
def deployed(make_project: Callable[[], Project], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """The first and the last command of docs/operations.md, with the tests between them."""
    project, remote = with_flow(make_project()), tmp_path_factory.mktemp("remote")
    told = replace(project, environment={**project.environment, "PATHFINDER_REMOTE": str(remote)})
    try:
        output = told.run(*UP)
        assert "nightly-" in output
        assert "are deployed at http://127.0.0.1:" in output
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
    assert "server: none" in project.run(*STATUS)


def test_the_schedule_is_inactive_and_the_remote_is_part_of_the_deployment(deployed: Deployed) -> None:
    found = deployed.deployment("nightly")
    assert [schedule["active"] for schedule in found["schedules"]] == [False]
    assert found["work_pool_name"] == f"pathfinder-{clone_id(deployed.project.root)}"
    assert found["job_variables"]["env"]["PATHFINDER_REMOTE"] == str(deployed.remote)
    assert git(deployed.project.root, "rev-parse", "HEAD").startswith(found["version"].removesuffix("-dirty"))
    assert deployed.post("flow_runs/filter") == []
    assert f"nightly/{found['name']}: 0 2 * * * (inactive)\n" in deployed.project.run(*STATUS)
    team = deployed.project.run("-c", "from flows.cli import app; app()", "team")
    pool = f"pathfinder-{clone_id(deployed.project.root)}"
    assert re.search(rf"^pool {pool}: worker {pool} online, last seen [0-9:]{{8}} UTC$", team, re.MULTILINE), team
    assert "leases: none, as no PATHFINDER_REMOTE is set" in team
    assert "slots" not in team


@pytest.mark.campaign
def test_up_restores_all_after_a_crash_and_keeps_the_schedule_whose_run_becomes_a_branch(deployed: Deployed) -> None:
    root = deployed.project.root
    service = server.recorded(root, "server")
    assert service is not None
    os.killpg(service.pid, signal.SIGKILL)
    deployed.project.run(*ACTIVE)
    again = server.recorded(root, "server")
    assert again is not None
    assert (again.url, again.pid != service.pid) == (service.url, True)
    assert deployed.schedule() == (True, "0 2 * * *")
    deployed.reschedule("* * * * *")
    deployed.project.run(*UP)
    assert deployed.schedule() == (True, "* * * * *"), "up changes neither the schedule nor its state"
    named = {"name": {"any_": ["nightly of main"]}}
    assert soon(lambda: deployed.post("flow_runs/filter", flow_runs=named), 300), deployed.post("flow_runs/filter")
    deployed.project.run(*INACTIVE)
    assert deployed.schedule() == (False, "* * * * *")
    first = deployed.ended(deployed.post("flow_runs/filter", flow_runs=named, sort="EXPECTED_START_TIME_ASC")[0]["id"])
    assert (first["state_type"], first["auto_scheduled"]) == ("COMPLETED", True), first["state"]
    (branch,) = [line.strip() for line in git(root, "branch", "--list", "runs/*").splitlines()]
    assert branch.endswith(git(root, "rev-parse", "HEAD")[:8])
    assert git(root, "log", "-1", "--format=%(trailers:key=Flow-Run,valueonly)", branch).strip() == first["id"]
    assert "deep.sum 165" in git(root, "log", "-1", "--format=%B", branch)
    assert '"sum": 165' in git(root, "show", f"{branch}:metrics/odd.json")
    assert "square@odd" in git(root, "show", f"{branch}:dvc.lock")
    assert not (root / "dvc.lock").exists(), "the working folder is not touched"
    assert list(deployed.remote.glob("files/md5/*/*")), "the deployment, not the worker's shell, names the remote"
    second = deployed.ended(deployed.start_run(deployed.deployment("nightly")))
    assert second["state"]["message"] == f"nothing has changed since {branch}; no branch was made"


@pytest.mark.campaign
def test_prefect_deploys_all_from_the_file_and_a_run_takes_its_code_from_git(
    deployed: Deployed, tmp_path: Path
) -> None:
    """The commands in the head of prefect.yaml, with addresses of this machine."""
    root, origin, remote = deployed.project.root, tmp_path / "origin.git", tmp_path / "bucket"
    git(tmp_path, "clone", "-q", "--bare", "--branch", "main", "--single-branch", str(root), str(origin))
    project = replace(
        deployed.project, environment={**deployed.project.environment, **server.environment(tmp_path, deployed.url)}
    )
    head = (ROOT / "prefect.yaml").read_text().split("\nname:")[0]
    commands = [shlex.split(line, comments=True) for line in re.findall(r"^#     prefect (.*)$", head, re.MULTILINE)]
    here = {"repository": origin.as_uri(), "remote": str(remote), "folder": str(root), "s3_endpoint": "none"}
    for words in commands:
        if words[:2] == ["variable", "set"]:
            words[3] = here.pop(words[2].removeprefix("pathfinder_"))
    assert not here
    *once, worker = commands
    assert (once[-1], worker[:2]) == (["--no-prompt", "deploy", "--all"], ["worker", "start"])
    deployed.post("work_pools/", name="pathfinder", type="process")  # as the worker of Compose does
    project.run(*prefect_commands(once))
    kinds = {kind: deployed.named(kind) for kind in (*KINDS, *STAGE_POOLS)}
    schemas = {kind: found["parameter_openapi_schema"]["properties"] for kind, found in kinds.items()}
    assert all(item.get("description") for schema in schemas.values() for item in schema.values()), schemas
    assert "quickstart" in schemas["nightly"]["profile"]["enum"]
    assert schemas["nightly"]["force"]["type"] == "boolean"
    run = deployed.start_run(kinds["nightly"])
    project.run("-m", "prefect", *worker, "--run-once")
    assert deployed.ended(run)["state"]["message"].startswith("results are in branch runs/")
    assert "runs/" in git(origin, "branch", "--list", "runs/*")
    assert list(remote.glob("files/md5/*/*"))
    for found in kinds.values():
        deployed.delete(f"deployments/{found['id']}")
    for pool in ("pathfinder", *(f"pathfinder-{kind}" for kind in STAGE_POOLS)):
        deployed.delete(f"work_pools/{pool}")


@pytest.mark.campaign
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
    assert {item["name"] for item in deployed.post("deployments/filter")} == {f"{kind}-{own}" for kind in KINDS}
    pools = {pool["name"]: pool["concurrency_limit"] for pool in deployed.post("work_pools/filter")}
    assert pools["team"] == 7
    assert {mine["work_pool_name"], "team"} == pools.keys()
    assert server.recorded(deployed.project.root, "server") is not None


@pytest.mark.campaign
def test_a_run_whose_machine_is_gone_ends_and_frees_its_slot(deployed: Deployed) -> None:
    project = deployed.project
    (project.root / "params.yaml").write_text("count: 6\n")
    project.trap("numbers", "pathlib.Path('pid.txt').write_text(f'{os.getpid()}\\n')\ntime.sleep(900)\n")
    run = deployed.start_run(deployed.deployment("reproduce"), targets=["numbers"])
    stage = int(wait_for(project.root / "pid.txt", 200))
    flow = processes.owner(processes.owned("")[stage])
    worker = server.recorded(project.root, "worker")
    assert worker is not None
    for pid in (*guardians_of(flow), worker.pid, *_with_parent(worker.pid), flow, stage):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    found = deployed.ended(run, 180)
    assert found["state_type"] == "CRASHED"
    assert "no heartbeat" in found["state"]["message"]
    (project.root / "trap_numbers.py").unlink()
    project.run(*UP)
    again = deployed.start_run(deployed.deployment("reproduce"), targets=["numbers"])
    assert deployed.ended(again)["state_type"] == "COMPLETED"


def test_a_run_of_a_deployment_without_a_remote_is_refused(deployed: Deployed) -> None:
    found = deployed.deployment("reproduce")
    url = f"{deployed.url}/deployments/{found['id']}"
    httpx.patch(url, json={"job_variables": {"env": {}}}, timeout=60).raise_for_status()
    run = deployed.ended(deployed.start_run(deployed.deployment("reproduce")))
    assert run["state_type"] == "FAILED"
    assert "does not say where results go: its job variables have no PATHFINDER_REMOTE" in run["state"]["message"]
    httpx.patch(url, json={"job_variables": found["job_variables"]}, timeout=60).raise_for_status()


def test_the_audit_fails_on_a_changed_byte(deployed: Deployed) -> None:
    root, audit = deployed.project.root, deployed.deployment("audit")
    run = deployed.ended(deployed.start_run(deployed.deployment("reproduce")))
    assert run["state_type"] == "COMPLETED", run["state"]
    found = deployed.ended(deployed.start_run(audit))
    assert (found["state_type"], found["name"]) == ("COMPLETED", "check"), found["state"]
    (root / "out/total.txt").write_text("286\n")
    found = deployed.ended(deployed.start_run(audit))
    assert (found["state_type"], found["name"]) == ("FAILED", "check")
    assert "out/total.txt" in found["state"]["message"]
    artifact = deployed.post("artifacts/latest/filter", artifacts={"key": {"any_": ["audit"]}})[0]
    assert "out/total.txt" in artifact["data"]


@pytest.mark.campaign
def test_a_promotion_and_a_collection_start_with_what_the_page_sends(deployed: Deployed) -> None:
    root = deployed.project.root
    (root / "params.yaml").write_text("count: 12\n")
    git(root, "commit", "-qam", "Twelve numbers")
    night = deployed.ended(deployed.start_run(deployed.deployment("nightly"), branch="main", targets=[], profile=""))
    branch = night["state"]["message"].removeprefix("results are in branch ")
    promotion = {"branch": branch, "target": "main", "largest_drop": 5, "repository": ""}
    promote = deployed.deployment("promote")
    refused = deployed.ended(deployed.start_run(promote, **promotion))
    assert "main is checked out in the repository; run `git merge --ff-only" in refused["state"]["message"]
    git(root, "checkout", "-q", "--detach")
    done = deployed.ended(deployed.start_run(promote, **promotion))
    assert done["state"]["message"].startswith(f"main is at {branch} ("), done["state"]
    assert git(root, "rev-parse", "main") == git(root, "rev-parse", branch)
    git(root, "checkout", "-q", "--force", "main")
    found = deployed.deployment("garbage")
    choices = {"where": "remote and cache", "delete": True, "days": 14, "repository": ""}
    collected = deployed.ended(deployed.start_run(found, **choices))
    assert collected["state_type"] == "COMPLETED", collected["state"]
    (table,) = deployed.post("artifacts/latest/filter", artifacts={"key": {"any_": ["garbage"]}})
    rows = json.loads(table["data"])
    assert [row["place"].partition(" ")[0] for row in rows] == ["remote", "cache", "cache"][: len(rows)]
    assert all(row["garbage"] == 0 < row["objects"] for row in rows), "everything is younger than 14 days"
    wrong = httpx.post(
        f"{deployed.url}/deployments/{found['id']}/create_flow_run", json={"parameters": {"days": 0}}, timeout=60
    )
    assert wrong.status_code == 409
    assert "days" in wrong.text


def test_a_server_that_does_not_respond_is_one_line(project: Project) -> None:
    shutil.copy(ROOT / "prefect.yaml", project.root)
    away = replace(project, environment={**project.environment, "PREFECT_API_URL": "http://127.0.0.1:9/api"})
    for command in (UP, DOWN):
        output = away.run(*command, code=75)
        assert "http://127.0.0.1:9/api: the Prefect server does not respond" in output
        assert "Traceback" not in output


def _with_parent(parent: int) -> list[int]:
    stats = {int(path.parent.name): path.read_text().rpartition(")")[2].split() for path in _stats()}
    children = [pid for pid, fields in stats.items() if fields[1] == str(parent)]
    return [*children, *(pid for child in children for pid in _with_parent(child))]


def _stats() -> Iterator[Path]:
    return (path for path in Path("/proc").glob("[0-9]*/stat") if path.exists())
