"""The hook of every flow: it emits an event that says what failed, which an automation of the server sends.

The address is known to the server only, and the server sends: a receiver that is away never fails or delays a run.
Prefect calls the hook in the process of the flow or, if that was killed, in its worker. Nobody calls it for a run whose
machine is gone; the automations notice that too (flows/team/notices/automations.py).
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
from flows.team.notices.notice import EVENT, MOST_LINES, labels, notice, tags

_FLUSH_S = 3.0


def tell(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Emit the event of a run that failed or crashed; a run that someone ended needs no notice."""
    error = _error(state)
    if isinstance(error, (Cancelled, KeyboardInterrupt)):
        return
    APILogWorker.drain_all(timeout=_FLUSH_S, at_exit=False)
    found = notice(flow_run.name, error, str(state.message or state.name), _last_lines(flow_run))
    payload = {**found.as_payload(), "flow": flow.name, "state": state.name}
    emit_event(
        EVENT, labels(str(flow_run.id), flow_run.name, found.cause), related=tags(flow_run.tags), payload=payload
    )


def _error(state: State[Any]) -> BaseException | None:
    """The exception that ended the run; ``None`` in a process other than the flow's."""
    found = state.data
    if found is not None and not isinstance(found, BaseException):
        found = state.result(raise_on_failure=False)
    return found if isinstance(found, BaseException) else None


def _last_lines(flow_run: FlowRun) -> list[str]:
    wanted = LogFilter.model_validate({"flow_run_id": {"any_": [flow_run.id]}})
    with get_client(sync_client=True) as client:
        logs = client.read_logs(wanted, limit=MOST_LINES, sort=LogSort.TIMESTAMP_DESC)
    return [line for log in reversed(logs) for line in log.message.splitlines()][-MOST_LINES:]
