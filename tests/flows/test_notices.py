"""Notices by a real Prefect server to a local HTTP receiver: failed, crashed, late runs; a receiver that is away."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock

from flows import server
from flows.team.deployment.definition import connected
from flows.team.notices import automations
from flows.team.notices.automations import target
from flows.team.notices.notice import MOST_LINES, report_killed
from ground.io import DataError
from tests.flows.conftest import Project
from tests.flows.test_operations import commands
from tests.flows.watch import soon, wait_for
from tests.support.receiver import Receiver

_STORED_S = 5  # the server writes the states of tasks every few seconds
SLEEPS = "time.sleep(600)\n"
ADDRESS, BLOCK, OFF = (words[1:] for words in commands("Notices", "python "))
"""The commands of docs/operations.md, with the name of the receiver at the end."""
HARSH = 'He said "no" {{ event.id }} <b>'
FAILS = f"""\
for number in range(30):
    print("line", number, flush=True)
print({HARSH!r}, flush=True)
print("error: numbers.txt:7: no number; correct the line", file=sys.stderr, flush=True)
sys.exit(1)
"""


@dataclass(frozen=True, slots=True)
class Told:
    """A project with a server that tells the receiver of its runs."""

    project: Project
    url: str
    receiver: Receiver

    def post(self, path: str, content: dict[str, Any]) -> Any:
        answer = httpx.post(f"{self.url}/{path}", json=content, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def create_run(self, name: str, state: dict[str, Any]) -> str:
        flow = self.post("flows/", {"name": "reproduce"})["id"]
        run = {"flow_id": flow, "name": name, "tags": [automations.TAG], "state": state}
        return str(self.post("flow_runs/", run)["id"])


@pytest.fixture(scope="module")
def told(make_project: Callable[[], Project]) -> Iterator[Told]:
    project, receiver = make_project(), Receiver()
    service = server.start_server(project.root)
    try:
        project = replace(project, environment={**project.environment, "PREFECT_API_URL": service.url})
        secret = replace(project, environment={**project.environment, "PATHFINDER_NOTIFY": receiver.url})
        assert "pathfinder notices: " in secret.run("-m", "flows.team.deploy", "notify")
        assert "pathfinder runs: " in project.run("-m", "flows.team.deploy", "automations")
        yield Told(project, service.url, receiver)
    finally:
        server.stop(project.root, "server")
        receiver.server.server_close()


@pytest.mark.campaign
def test_a_failed_stage_is_told_with_its_last_lines_within_ten_seconds(told: Told) -> None:
    told.project.trap("numbers", FAILS)
    told.project.reproduce(code=1)
    (run,) = told.post("flow_runs/filter", {"sort": "EXPECTED_START_TIME_DESC", "limit": 1})
    when, message = told.receiver.told_of(run["name"], 30)
    took = when - datetime.fromisoformat(run["state"]["timestamp"]).timestamp()
    print(f"told {took:.1f} s after the end of the run")
    assert took < 10
    assert (message["stage"], message["subject"]) == ("numbers", f"numbers failed in {run['name']}")
    assert len(message["lines"]) == MOST_LINES
    assert HARSH in message["lines"], "text from a stage is no template"
    assert "error: numbers.txt:7: no number; correct the line" in message["cause"]
    assert message["remedy"] == "correct the cause, then run again: stages that succeeded are not repeated"
    assert message["link"].endswith(f"/runs/flow-run/{run['id']}")
    assert HARSH in message["text"]
    assert "secret" not in json.dumps(told.post("automations/filter", {}))


@pytest.mark.campaign
def test_a_killed_flow_is_told_by_its_guardian_within_ten_seconds(told: Told) -> None:
    (told.project.root / "pids.txt").unlink(missing_ok=True)
    told.project.trap("numbers", "print('at work', flush=True)\npathlib.Path('pids.txt').write_text('1\\n')\n" + SLEEPS)
    process = told.project.start("-m", "flows.reproduce")
    wait_for(told.project.root / "pids.txt")
    (run,) = told.post("flow_runs/filter", {"sort": "EXPECTED_START_TIME_DESC", "limit": 1})
    time.sleep(_STORED_S)
    process.kill()
    begun = time.time()
    process.communicate()
    when, message = told.receiver.told_of(run["id"], 60)
    print(f"told {when - begun:.1f} s after the kill")
    assert when - begun < 10 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), (
        "on a machine with free cores: 10 s"
    )
    assert message["subject"] == f"numbers was killed in {run['name']}"
    assert message["cause"].startswith(f"its process was killed: PID {process.pid}, since ")
    assert message["lines"][-1] == "at work"
    assert message["remedy"].startswith("the process was killed")
    (ended,) = told.post("flow_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    assert ended["state_type"] == "CRASHED"
    time.sleep(20)
    assert [run["id"] in json.dumps(sent) for _, sent in told.receiver.messages].count(True) == 1, "told once"


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("state", "then"), [("SCHEDULED", "CANCELLED"), ("PENDING", "CANCELLED"), ("RUNNING", "RUNNING")]
)
def test_a_stage_that_waits_for_a_worker_is_cancelled_once_its_run_is_killed(told: Told, state: str, then: str) -> None:
    """A worker that has started its work finishes it, and the next run takes the result."""
    run = told.create_run("killed one", {"type": "RUNNING"})
    task = told.post("task_runs/", {"flow_run_id": run, "task_key": "order", "dynamic_key": "0"})["id"]
    flow = told.post("flows/", {"name": "stage"})["id"]
    stage = told.post("flow_runs/", {"flow_id": flow, "parent_task_run_id": task, "state": {"type": state}})["id"]
    report_killed(str(told.project.root), run, told.url, "its process was killed: PID 1", {})
    found = told.post("flow_runs/filter", {"flow_runs": {"id": {"any_": [run, stage]}}})
    assert {each["id"]: each["state_type"] for each in found} == {run: "CRASHED", stage: then}


@pytest.mark.campaign
def test_crashed_and_late_runs_are_told_without_the_run(told: Told) -> None:
    with connected(told.project.root, told.url) as client:
        automations.notify(client, target(told.receiver.url), unstarted_s=10)
    late = told.create_run("late one", {"type": "SCHEDULED", "state_details": {"scheduled_time": _now()}})
    crashed = told.create_run("crashed one", {"type": "RUNNING"})
    crash = {"state": {"type": "CRASHED", "message": 'no sign of "life"'}}
    told.post(f"flow_runs/{crashed}/set_state", crash)
    begun = time.time()
    when, message = told.receiver.told_of("crashed one", 60)
    print(f"told {when - begun:.1f} s after the crash")
    assert message["subject"] == "crashed one crashed"
    assert message["cause"] == 'no sign of "life"'
    assert message["link"].endswith(f"/runs/flow-run/{crashed}")
    when, message = told.receiver.told_of("late one", 90)
    print(f"told {when - begun:.1f} s after the time of the start")
    assert message["subject"] == "late one has not started"
    assert "Late since" in message["text"]
    assert message["link"].endswith(f"/runs/flow-run/{late}")


@pytest.mark.campaign
def test_lost_and_canceled_runs_reach_a_final_state_within_two_minutes(told: Told) -> None:
    """Neither has a process or a worker: the first gave a sign of life, someone canceled the second."""
    lost, canceled = (told.create_run(f"{kind} one", {"type": "RUNNING"}) for kind in ("lost", "canceled"))
    told.post(f"flow_runs/{canceled}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}})
    tag = {"prefect.resource.id": f"prefect.tag.{automations.TAG}", "prefect.resource.role": "tag"}
    beat = {"event": automations.HEARTBEAT, "occurred": _now(), "id": str(uuid4()), "related": [tag]}
    resource = {"prefect.resource.id": f"prefect.flow-run.{lost}", "prefect.resource.name": "lost one"}
    answer = httpx.post(f"{told.url}/events", json=[beat | {"resource": resource}], timeout=60)
    assert answer.is_success, answer.text
    begun = time.time()

    def states() -> dict[str, str]:
        found = told.post("flow_runs/filter", {"flow_runs": {"id": {"any_": [lost, canceled]}}})
        return {run["name"]: run["state_type"] for run in found}

    ends = {"lost one": "CRASHED", "canceled one": "CANCELLED"}
    assert soon(lambda: states() == ends, 180), states()
    print(f"both had ended after {time.time() - begun:.0f} s")
    when, message = told.receiver.told_of("lost one", 60)
    (run,) = told.post("flow_runs/filter", {"flow_runs": {"id": {"any_": [lost]}}})
    took = when - datetime.fromisoformat(run["state"]["timestamp"]).timestamp()
    print(f"the lost one was told {took:.1f} s after its state")
    assert took < 10
    assert message["cause"] == "no heartbeat for 90 s: its machine or process is gone"


@pytest.mark.campaign
def test_a_block_for_notifications_gets_a_text_with_the_link(told: Told) -> None:
    with connected(told.project.root, told.url):
        name = "custom-webhook/team"
        with pytest.raises(DataError, match="no such block; create it on the server's page"):
            target(name)
        block = CustomWebhookNotificationBlock(
            name="team", url=told.receiver.url, json_data={"title": "{{subject}}", "text": "{{body}}"}
        )
        block.save("team")
    told.project.run(*BLOCK[:-1], name)
    told.project.trap("numbers", FAILS)
    told.project.reproduce(code=1)
    (run,) = told.post("flow_runs/filter", {"sort": "EXPECTED_START_TIME_DESC", "limit": 1})
    _, message = told.receiver.told_of(run["id"], 30)
    assert message["title"] == f"numbers failed in {run['name']}"
    *_, last, link = message["text"].splitlines()
    assert last.startswith("Remedy: correct the cause")
    assert link.endswith(f"/runs/flow-run/{run['id']}")


@pytest.mark.campaign
def test_a_receiver_that_is_away_changes_nothing(told: Told) -> None:
    told.project.run(*ADDRESS[:-1], "http://127.0.0.1:9/nobody")
    told.project.trap("numbers", FAILS)
    output = told.project.reproduce(code=1)
    assert "failed or not started: numbers" in output
    assert "127.0.0.1:9" not in output
    assert "notices are off" in told.project.run(*OFF)
    left = {item["name"] for item in told.post("automations/filter", {})}
    assert left == {"pathfinder runs: lost", "pathfinder runs: canceled"}


def _now() -> str:
    return datetime.now(UTC).isoformat()
