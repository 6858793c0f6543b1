"""Which runs have a notice, what it says, and who sends it; without a server of Prefect."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

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

from flows.local.dvc import Cancelled
from flows.reproduce import StagesFailed, reproduce
from flows.team.deployment.audit import AuditFailed
from flows.team.deployment.promote import PromotionRefused, promote
from flows.team.notices import automations
from flows.team.notices.hooks import tell
from flows.team.notices.notice import killed_notice, notice, remedy, report_killed
from flows.terminal import log_path
from tests.support.servers import JSONHandler, private_tls, serving


def test_a_notice_names_the_stage_and_shows_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / log_path("label")
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(20)) + "x" * 9000 + "\n")
    error = StagesFailed("failed or not started: label, filter", {"label": "reached its time limit of 60 s"})
    found = notice("all stages", error, "", ["of the flow"])
    named = {"label": "label: pool judge has had no worker for 600 s"}
    assert notice("all stages", StagesFailed("", named), "", []).cause == named["label"], "the name comes once"
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
    monkeypatch.setattr("flows.team.notices.notice._LOOK_S", 0.02)
    monkeypatch.setattr(
        "flows.team.notices.notice._WORKER_S", 20.0 if told_by_worker else 0.5
    )  # a busy machine answers late
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
    """Prefect's own task for the run of a stage in a pool, with a name by chance, is no stage."""
    stages = {"label": "AwaitingRetry", "filter": "Completed", "validate": "Pending", "train": "Running"}
    told = list[dict[str, Any]]()

    class Server(JSONHandler):
        def do_GET(self) -> None:
            self.send(200, {"name": "all stages", "state_type": "RUNNING", "deployment_id": None, "tags": []})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.extend(body if self.path == "/events" else ())
            wanted = body["task_runs"] if self.path == "/task_runs/filter" else {"state": {"name": {"any_": ()}}}
            found = stages if wanted.get("subflow_runs") == {"exists_": False} else {**stages, "odd-otter": "Running"}
            self.send(
                200, [{"name": name} for name, state in found.items() if state in wanted["state"]["name"]["any_"]]
            )

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

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send(200, [])

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
