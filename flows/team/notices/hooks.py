"""The hook of every flow: it emits an event that says what failed, which an automation of the server sends.

Only the server knows the address and sends: a receiver that is away never fails or delays a run. Prefect calls the hook
in the process of the flow or, if that was killed, in its worker. Nobody calls it for a run whose machine is gone; the
automations notice that too (flows/team/notices/automations.py).
"""

from __future__ import annotations

from typing import Any

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.sorting import LogSort
from prefect.events import emit_event
from prefect.logging.handlers import APILogWorker

from flows.local.dvc import Cancelled
from flows.team.notices.notice import MOST_LINES, TRACEBACK, notice
from ground.text import plain_message


def tell(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Emit the event of a run that failed or crashed; a run that someone ended needs no notice."""
    found = getattr(state.data, "result", state.data)  # Prefect's record of an exception, or the exception
    error = found if isinstance(found, BaseException) else None  # in a process other than the flow's
    if isinstance(error, (Cancelled, KeyboardInterrupt)):
        return
    APILogWorker.drain_all(timeout=3.0, at_exit=False)
    reason = plain_message(error)
    wanted = LogFilter.model_validate({"flow_run_id": {"any_": [flow_run.id]}})
    with get_client(sync_client=True) as client:
        logs = client.read_logs(wanted, limit=MOST_LINES, sort=LogSort.TIMESTAMP_DESC)
    texts = [log.message for log in reversed(logs) if reason is None or TRACEBACK not in log.message]
    lines = [line for text in texts for line in text.splitlines()]
    told = notice(flow_run.name, error, reason or str(state.message or state.name), lines)
    emit_event(**told.as_event(str(flow_run.id), flow_run.tags, flow=flow.name, state=state.name))
