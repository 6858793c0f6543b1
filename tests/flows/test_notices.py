"""Notices by a real Prefect server to a local HTTP receiver: failed, crashed, late runs; a receiver that is away."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest
from prefect.blocks.core import Block
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.blocks.webhook import Webhook
from prefect.client.schemas.objects import FlowRun, State
from prefect.events.actions import CallWebhook, SendNotification
from prefect.events.schemas.automations import EventTrigger
from prefect.server.events.schemas.automations import EventTrigger as ServerTrigger
from prefect.server.events.schemas.events import RelatedResource, Resource
from prefect.server.utilities.user_templates import TemplateRenderError, render_user_template
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Failed

from flows import server
from flows.local.dvc import Cancelled
from flows.reproduce import StagesFailed, reproduce
from flows.team.deployment.audit import AuditFailed
from flows.team.deployment.definition import connected
from flows.team.deployment.promote import PromotionRefused, promote
from flows.team.notices import automations, killed
from flows.team.notices.automations import target
from flows.team.notices.hooks import tell
from flows.team.notices.killed import report_killed
from flows.team.notices.notice import MOST_LINES, killed_notice, notice, remedy
from flows.terminal import log_path
from ground.io import DataError
from tests.flows.conftest import Project
from tests.flows.test_operations import commands
from tests.flows.watch import soon, wait_for
from tests.support.receiver import Receiver
from tests.support.servers import JSONHandler, private_tls, serving

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


def test_a_notice_names_the_stage_and_shows_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / log_path("label")
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(20)) + "x" * 9000 + "\n")
    error = StagesFailed("failed or not started: label, filter", {"label": "reached its time limit of 60 s"})
    found = notice("all stages", error, "", ["of the flow"])
    assert found.subject == "label failed in all stages"
    assert found.cause == "label: reached its time limit of 60 s"
    assert found.lines == (*(f"line {number}" for number in range(11, 20)), "x" * 500)
    assert found.remedy.endswith("or raise its limit in infra/resources.yaml")
    assert found.text.splitlines()[-1] == f"Remedy: {found.remedy}"


@pytest.mark.parametrize(
    ("cause", "subject", "advice"),
    [
        ("its process was killed: PID 7: -m flows connect", "label was killed in all stages", "the process was killed"),
        ("the Prefect server ended: PID 7: -m flows killed", "label failed in all stages", "correct the cause"),
    ],
)
def test_a_guardian_says_killed_only_of_a_killed_run(tmp_path: Path, cause: str, subject: str, advice: str) -> None:
    found = killed_notice("all stages", ["label"], cause, tmp_path, [])
    assert (found.subject, found.cause) == (subject, cause)
    assert found.remedy.startswith(advice)


def test_a_run_without_a_failed_stage_shows_the_lines_of_the_flow() -> None:
    found = notice("check", AuditFailed("error: out changed (2 differences)"), "AuditFailed: …", ["one", "two"])
    assert (found.subject, found.lines) == ("check failed", ("one", "two"))
    assert found.remedy.startswith("`pathfinder lineage check --remote`")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("OSError: [Errno 28] No space left on device", "make room on the disk"),
        ("3 of 40 gates failed:", "correct the stage that wrote the file"),
        ("Could not connect to the endpoint URL", "check that store and server answer"),
        ("is busy, it is being blocked by: (PID 7)", "wait for the named process"),
        ("failed to run: python -m stages.train full, exited with -9", "the process was killed"),
        ("KeyError: 'x'", "correct the cause"),
    ],
)
def test_the_remedy_fits_the_cause(text: str, advice: str) -> None:
    assert remedy(text).startswith(advice)


def test_a_canceled_run_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.team.notices.hooks.emit_event", lambda *_, **__: pytest.fail("told"))
    run = FlowRun(flow_id=uuid4(), name="one")
    tell(reproduce, run, Failed(data=Cancelled("the run is ending")))


def test_a_run_that_the_user_interrupted_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.team.notices.hooks.emit_event", lambda *_, **__: pytest.fail("told"))
    tell(reproduce, FlowRun(flow_id=uuid4(), name="one"), Crashed(data=KeyboardInterrupt()))


def saved(is_webhook: bool) -> Block:
    """A block that the server has."""
    url = "https://hooks.example.org/"
    block = Webhook(url=url) if is_webhook else CustomWebhookNotificationBlock(name="team", url=url)
    block._block_document_id = uuid4()
    return block


def test_a_refused_promotion_is_told_in_one_line_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect's log has a traceback, and its state a sentence before the reason."""
    reason, told = "runs/2026-01-01-x does not follow main, which is at 0a1b now; run the nightly again", list[Any]()
    texts = (
        f"Finished in state Failed('{reason}')",
        f"Encountered exception:\nTraceback (most recent call last):\n  {reason}",
    )
    server = SimpleNamespace(read_logs=lambda *_, **__: [SimpleNamespace(message=text) for text in texts])
    monkeypatch.setattr("flows.team.notices.hooks.get_client", lambda **_: nullcontext(server))
    monkeypatch.setattr("flows.team.notices.hooks.emit_event", lambda *_, payload, **__: told.append(payload))
    state: State[Any] = Failed(
        data=PromotionRefused(reason), message=f"Flow run encountered an exception: PromotionRefused: {reason}"
    )
    tell(promote, FlowRun(flow_id=uuid4(), name="promote"), state)
    (payload,) = told
    assert payload["text"].splitlines() == [reason, f"    {texts[0]}", f"Remedy: {payload['remedy']}"]
    assert payload["remedy"].endswith("run the nightly again, then promote the branch that it makes")


@pytest.mark.parametrize("is_webhook", [True, False])
def test_the_link_is_the_page_that_the_client_knows(is_webhook: bool) -> None:
    """A team's server has no address in its settings."""
    with temporary_settings({PREFECT_API_URL: "https://prefect.example.org/api"}):
        action = automations._send(saved(is_webhook), automations._message("crashed"))
    template = action.payload if isinstance(action, CallWebhook) else cast(SendNotification, action).body
    assert "https://prefect.example.org/runs/flow-run/{{ flow_run.id }}" in str(template)


@pytest.mark.parametrize(
    ("kind", "now", "message"),
    [
        ("has not started", {"start_time": None}, ""),
        ("has not started", {"start_time": datetime.now(UTC)}, None),
        ("crashed", {"state_type": "CRASHED"}, "no heartbeat for 90 s"),
        ("crashed", {"state_type": "CRASHED"}, ""),
        ("crashed", {"state_type": "COMPLETED"}, None),
        ("crashed", {"state_type": "CRASHED", "state_message": "Execution was aborted by an interrupt signal."}, None),
    ],
)
def test_the_server_reads_the_state_of_a_run_before_it_sends_a_notice(
    kind: str, now: dict[str, Any], message: str | None
) -> None:
    """The template gets the state from the event, and all other values of the run as they are now."""
    state = SimpleNamespace(name="Late", timestamp="yesterday", message=now.get("state_message", message))
    context = {"flow_run": SimpleNamespace(name="one", state=state, **now), "deployment": SimpleNamespace(name="night")}
    action = automations._send(saved(True), automations._message(kind))
    assert isinstance(action, CallWebhook)
    rendered = render_user_template(action.payload, context)
    if message is None:
        with pytest.raises(TemplateRenderError, match="this_notice_is_outdated"):
            asyncio.run(rendered)
    else:
        assert json.loads(asyncio.run(rendered))["subject"] == f"night: one {kind}"


def test_a_stage_of_a_pool_that_waits_for_its_turn_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, EventTrigger] = {}
    monkeypatch.setattr(automations, "_replace", lambda _, name, trigger, __: made.update({name: trigger}))
    automations.notify(cast(Any, None), saved(True))
    trigger = ServerTrigger.model_validate(made["pathfinder notices: not started"].model_dump())
    tag, run = RelatedResource(cast(Any, automations._TAGGED)), Resource({"prefect.resource.id": "prefect.flow-run.1"})
    for name, covered in (("stage", False), ("nightly", True)):
        flow = {"prefect.resource.role": "flow", "prefect.resource.id": "prefect.flow.1", "prefect.resource.name": name}
        assert trigger.covers_resources(run, [RelatedResource(flow), tag]) is covered


@pytest.mark.parametrize(("is_deployed", "told_by_worker"), [(True, True), (True, False), (False, False)])
def test_a_killed_run_is_told_by_its_worker_or_its_guardian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deployed: bool, told_by_worker: bool
) -> None:
    """The worker needs longer than the first look of the guardian."""
    monkeypatch.setattr(killed, "_LOOK_S", 0.02)
    monkeypatch.setattr(killed, "_WORKER_S", 20.0 if told_by_worker else 0.5)  # a busy machine answers late
    looks, posts = list[str](), list[str]()

    class Server(JSONHandler):
        def do_GET(self) -> None:
            looks.append(self.path)
            state = "CRASHED" if told_by_worker and len(looks) > 3 else "RUNNING"
            deployment = "1" if is_deployed else None
            self.send(200, {"name": "all stages", "state_type": state, "deployment_id": deployment, "tags": []})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            posts.append(self.path)
            self.send(200, [])

    with serving(Server) as address:
        report_killed(str(tmp_path), str(uuid4()), address, "PID 1", {})
    assert posts.count("/events") == (0 if told_by_worker else 1)
    if told_by_worker:
        assert len(looks) == 4
    else:
        assert (len(looks) > 2) is is_deployed, "only a deployed run has a worker to wait for"


def test_a_stage_that_is_to_be_tried_again_is_named_when_its_run_is_killed(tmp_path: Path) -> None:
    stages = {"label": "AwaitingRetry", "filter": "Completed", "validate": "Pending", "train": "Running"}
    told = list[dict[str, Any]]()

    class Server(JSONHandler):
        def do_GET(self) -> None:
            self.send(200, {"name": "all stages", "state_type": "RUNNING", "deployment_id": None, "tags": []})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.extend(body if self.path == "/events" else ())
            asked = body["task_runs"]["state"]["name"]["any_"] if self.path == "/task_runs/filter" else ()
            self.send(200, [{"name": name} for name, state in stages.items() if state in asked])

    with serving(Server) as address:
        report_killed(str(tmp_path), str(uuid4()), address, "its process was killed: PID 1", {})
    assert told[0]["payload"]["subject"] == "label, train was killed in all stages"


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "PREFECT_API_SSL_CERT_FILE"])
def test_a_killed_run_is_reported_to_a_server_of_a_private_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    looks = list[str]()

    class Server(JSONHandler):
        def do_GET(self) -> None:
            looks.append(self.path)
            self.send(200, {"state_type": "CRASHED"})

    tls, authority = private_tls(tmp_path)
    with serving(Server, tls) as address:
        report_killed(str(tmp_path), str(uuid4()), address, "PID 1", {})
        assert not looks, "the certificate is not trusted"
        monkeypatch.setenv(variable, str(authority))
        report_killed(str(tmp_path), str(uuid4()), address, "PID 1", {})
        assert len(looks) == 1
        monkeypatch.setenv("PREFECT_API_SSL_CERT_FILE", str(tmp_path / "gone.pem"))
        report_killed(str(tmp_path), str(uuid4()), address, "PID 1", {})
    assert len(looks) == 1, "a missing certificate is left to the next run"
