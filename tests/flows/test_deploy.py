"""The nightly deployment on a real server: deploy, let one scheduled run finish, delete."""

from __future__ import annotations

import shutil
import time

import httpx
import pytest

from flows import server
from tests.flows.conftest import ROOT, Project
from tests.flows.test_dvc import alive

pytestmark = pytest.mark.slow


def test_a_scheduled_run_fires_and_finishes(project: Project) -> None:
    shutil.copytree(ROOT / "flows", project.root / "flows", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "prefect.yaml", project.root)
    try:
        output = project.run("-m", "flows.deploy", "up", "--active", "--cron", "* * * * *")
        assert "reproduce/nightly is deployed at" in output
        service = server.recorded(project.root, "server")
        worker = server.recorded(project.root, "worker")
        assert service is not None
        assert worker is not None
        found = httpx.post(f"{service.url}/deployments/filter", json={}, timeout=60).json()
        assert [(item["name"], item["work_pool_name"], item["paused"]) for item in found] == [
            ("nightly", "pathfinder", False)
        ]
        run = _finished(service.url, 300)
        assert run["state_type"] == "COMPLETED", run
        assert run["auto_scheduled"]
        assert (project.root / "out/total.txt").read_text() == "285\n"
    finally:
        project.run("-m", "flows.deploy", "down")
    assert not alive(service.pid)
    assert not alive(worker.pid)
    assert "server: none" in project.run("-m", "flows.deploy", "status")


def test_the_schedule_is_inactive_by_default(project: Project) -> None:
    shutil.copytree(ROOT / "flows", project.root / "flows", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "prefect.yaml", project.root)
    try:
        project.run("-m", "flows.deploy", "up")
        service = server.recorded(project.root, "server")
        assert service is not None
        deployment = httpx.post(f"{service.url}/deployments/filter", json={}, timeout=60).json()[0]
        assert [schedule["active"] for schedule in deployment["schedules"]] == [False]
        assert httpx.post(f"{service.url}/flow_runs/filter", json={}, timeout=60).json() == []
    finally:
        project.run("-m", "flows.deploy", "down")


def _finished(url: str, seconds: float) -> dict[str, object]:
    deadline = time.monotonic() + seconds
    runs: list[dict[str, object]] = []
    while time.monotonic() < deadline:
        runs = httpx.post(f"{url}/flow_runs/filter", json={"sort": "EXPECTED_START_TIME_ASC"}, timeout=60).json()
        ended = [run for run in runs if run["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")]
        if ended:
            return ended[0]
        time.sleep(1)
    raise AssertionError(f"no scheduled run ended: {[(run['name'], run['state_type']) for run in runs]}")
