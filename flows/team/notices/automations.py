"""The automations that watch the runs of a Prefect server: they end lost runs and send notices of problems.

They concern the runs of all deployments with the tag ``pathfinder``, which every deployment of prefect.yaml has,
whichever clone made it. A lost run is one whose machine is gone: it cannot report its end, and would hold its slot for
ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import cast
from uuid import UUID

from prefect.blocks.core import Block
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import DeploymentFilter
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ActionTypes, CallWebhook, ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.settings import PREFECT_UI_URL

from flows import server
from flows.team.notices.notice import EVENT
from ground.io import DataError

TAG = "pathfinder"
BLOCK = "pathfinder-notices"
HEARTBEAT = "prefect.flow-run.heartbeat"
LOST_AFTER_S = 3 * server.HEARTBEAT_S
CANCELED_AFTER_S = 90
UNSTARTED_AFTER_S = 300
_WATCH, _NOTICES = f"{TAG} runs: ", f"{TAG} notices: "
_GRACE_S = 10  # time for the hook of a crashed run; the least that Prefect accepts
_ENDS = tuple(f"prefect.flow-run.{name}" for name in ("Completed", "Failed", "Cancelled", "Crashed"))
_WAITS = tuple(f"prefect.flow-run.{name}" for name in ("Paused", "Suspended", "AwaitingRetry"))
_KEYS = ("subject", "text", "run", "stage", "cause", "lines", "remedy")
_RUN = {"prefect.resource.id": "prefect.flow-run.*"}
_TAGGED: dict[str, str | list[str]] = {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"}
_NO_STAGE: dict[str, str | list[str]] = {"prefect.resource.role": "flow", "prefect.resource.name": "!stage"}
_UNTOLD = {
    "crashed": "{{ flow_run.state.message }}",
    "has not started": "state {{ flow_run.state.name }} since {{ flow_run.state.timestamp }}",
}
LOST, GONE = "no heartbeat for", "its machine or process is gone"
_OUTDATED = {
    "crashed": "flow_run.state_type != 'CRASHED' or 'interrupt signal' in (flow_run.state.message or '')",
    "has not started": "flow_run.start_time",
}
"""True if a notice is outdated or the user pressed Ctrl-C: the template then fails, so the server sends nothing."""
_REMEDIES = {
    "crashed": "check the worker's machine; the next run resumes from journal and checkpoints",
    "has not started": "check that a worker serves the work pool, and that no other run holds its slots",
}


def target(name: str) -> Block:
    """The block TYPE/NAME, or a webhook block for an address; raises ``DataError`` if there is none that sends."""
    if "://" in name:
        webhook = Webhook(url=name, headers={"Content-Type": "application/json"})
        webhook.save(BLOCK, overwrite=True)
        return webhook
    try:
        block = cast(Block, Block.load(name))
    except ValueError as error:
        raise DataError(
            f"{name}: the Prefect server has no such block; create it on the server's page, and name it as TYPE/NAME, "
            "for example slack-webhook/team"
        ) from error
    if not isinstance(block, Webhook) and "notify" not in block.get_block_capabilities():
        raise DataError(f"{name}: sends no messages; name a block for notifications or a webhook")
    return block


def watch(client: SyncPrefectClient) -> None:
    """Create or replace the automations that give lost and canceled runs a final state."""
    lost = _absence({HEARTBEAT}, (HEARTBEAT, *_ENDS, *_WAITS), LOST_AFTER_S)
    crash = ChangeFlowRunState(state=StateType.CRASHED, message=f"{LOST} {LOST_AFTER_S} s: {GONE}")
    canceled = _absence({"prefect.flow-run.Cancelling"}, _ENDS, CANCELED_AFTER_S)
    cancel = ChangeFlowRunState(
        state=StateType.CANCELLED, message=f"no worker has confirmed the end for {CANCELED_AFTER_S} s", force=True
    )
    _replace(client, f"{_WATCH}lost", lost, crash)
    _replace(client, f"{_WATCH}canceled", canceled, cancel)


def notify(client: SyncPrefectClient, target: Block | None, unstarted_s: float = UNSTARTED_AFTER_S) -> None:
    """Create or replace the automations that tell ``target`` of failed, crashed, lost, late and stuck runs.

    Without a target, delete them. Only the server knows of a lost run, so it sends at once. After other crashes it
    waits for the event of the hook or the guardian, which has more facts.
    """
    if target is None:
        _remove(client, _NOTICES)
        return
    told = EventTrigger(expect={EVENT}, posture=Posture.Reactive)
    ends, match = {"prefect.flow-run.Crashed"}, {**_RUN, "prefect.state-message": f"{LOST}*"}
    lost = EventTrigger(expect=ends, match=match, match_related=_TAGGED, posture=Posture.Reactive)
    crashed = _absence(ends, (EVENT,), _GRACE_S, {"prefect.state-message": f"!{LOST}*"})
    begun = ("prefect.flow-run.Running", *_ENDS, *_WAITS)
    unstarted = _absence({"prefect.flow-run.Late", "prefect.flow-run.Pending"}, begun, unstarted_s)
    unstarted.match_related = [_TAGGED, _NO_STAGE]  # a stage may wait for its turn; the run that needs it watches it
    _replace(client, f"{_NOTICES}failed", told, _send(target, {key: f"{{{{ event.payload.{key} }}}}" for key in _KEYS}))
    _replace(client, f"{_NOTICES}lost", lost, _send(target, _message("crashed")))
    _replace(client, f"{_NOTICES}crashed", crashed, _send(target, _message("crashed")))
    _replace(client, f"{_NOTICES}not started", unstarted, _send(target, _message("has not started")))


def unwatch(client: SyncPrefectClient) -> None:
    """Delete what ``watch`` made, unless deployments with the tag are left."""
    left = DeploymentFilter.model_validate({"tags": {"all_": [TAG]}})
    if not client.read_deployments(deployment_filter=left, limit=1):
        _remove(client, _WATCH)


def _message(kind: str) -> Mapping[str, str]:
    outdated = f"{{% if {_OUTDATED[kind]} %}}{{{{ this_notice_is_outdated() }}}}{{% endif %}}"
    subject = f"{outdated}{{{{ deployment.name ~ ': ' if deployment }}}}{{{{ flow_run.name }}}} {kind}"
    told = {"run": "{{ flow_run.name }}", "stage": "", "cause": _UNTOLD[kind], "lines": "", "remedy": _REMEDIES[kind]}
    return {"subject": subject, "text": f"{_UNTOLD[kind]}\nRemedy: {_REMEDIES[kind]}", **told}


def _send(target: Block, message: Mapping[str, str]) -> ActionTypes:
    """The action that sends a message of templates: a webhook gets JSON, every other block a subject and a text."""
    block = UUID(str(target._block_document_id))
    if not isinstance(target, Webhook):
        body = f"{message['text']}\n{_link()}"
        return SendNotification(block_document_id=block, subject=message["subject"], body=body)
    fields = ", ".join(f'"{key}": {_as_json(value)}' for key, value in {**message, "link": _link()}.items())
    return CallWebhook(block_document_id=block, payload=f"{{{fields}}}")


def _link() -> str:
    """The template of the run's page as this client knows it: a team's server does not know its address."""
    return f"{str(PREFECT_UI_URL.value()).rstrip('/')}/runs/flow-run/{{{{ flow_run.id }}}}"


def _as_json(template: str) -> str:
    """A template whose result is a JSON value, whatever characters the values have."""
    if template.startswith("{{") and template.count("{{") == 1 and template.endswith("}}"):
        return f"{template[:-2]}|tojson }}}}"
    return f"{{% set value %}}{template}{{% endset %}}{{{{ value|string|tojson }}}}"


def _absence(
    after: set[str], expected: tuple[str, ...], seconds: float, labels: Mapping[str, str] | None = None
) -> EventTrigger:
    """A trigger for a run that emits none of the ``expected`` events within ``seconds`` of one of ``after``.

    Only events with ``labels`` count.
    """
    return EventTrigger(
        after=after,
        expect=set(expected),
        match={**_RUN, **(labels or {})},
        match_related=_TAGGED,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        within=timedelta(seconds=seconds),
    )


def _replace(client: SyncPrefectClient, name: str, trigger: EventTrigger, action: ActionTypes) -> None:
    _remove(client, name)
    client.create_automation(AutomationCore(name=name, trigger=trigger, actions=[action]))


def _remove(client: SyncPrefectClient, beginning: str) -> None:
    for found in client.read_automations():
        if found.name.startswith(beginning):
            client.delete_automation(found.id)
