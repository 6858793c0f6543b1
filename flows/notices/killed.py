"""The report of a run whose process was killed, by its guardian (flows/guard/guardian.py)."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import State, StateType
from prefect.events.worker import EventsWorker
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings
from prefect.states import Crashed

from flows import server
from flows.notices.hooks import emit, last_lines
from flows.notices.notice import killed_notice

_WORKER_S = 1.0  # a worker that started the run notices its end immediately, and calls the hook of the flow
_SEND_S = 10.0


def report_killed(root: str, flow_run_id: str, api: str, process: str) -> None:
    """Set a run to Crashed and emit its event, unless its worker did so, someone canceled it, or the server is away.

    ``root`` is the folder of the run, ``api`` the address of the server, and ``process`` describes what was killed.
    """
    if not server.is_healthy(api):  # the server of this run alone has ended with it; the next run reports it
        return
    time.sleep(_WORKER_S)
    settings = {PREFECT_API_URL: api, PREFECT_HOME: server.home(Path(root))}
    with temporary_settings(settings), get_client(sync_client=True) as client, contextlib.suppress(ObjectNotFound):
        run = client.read_flow_run(UUID(flow_run_id))
        if run.state is None or run.state.is_final() or run.state.is_cancelling():
            return
        crash: State[Any] = Crashed(message=f"its process was killed: {process}")
        client.set_flow_run_state(run.id, crash, force=True)
        found = killed_notice(run.name, _running(client, run.id), str(crash.message), Path(root), last_lines(run))
        emit(run, client.read_flow(run.flow_id).name, crash, found)
        EventsWorker.drain_all(timeout=_SEND_S, at_exit=False)


def _running(client: SyncPrefectClient, flow_run_id: UUID) -> list[str]:
    """The stages that the server knows to run: the names of the run's tasks."""
    tasks = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.RUNNING])))
    run = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    return sorted(task.name for task in client.read_task_runs(flow_run_filter=run, task_run_filter=tasks))
