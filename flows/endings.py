"""The ends of flow runs on the Prefect server: of runs that were killed, and of runs whose server is gone."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import State
from prefect.states import Crashed

from flows.local.lock import Hold, Holder, held
from ground.io import PathfinderError, TransientError

SETTLE_S = 20.0


@contextlib.contextmanager
def held_by_flow(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a folder's lock as ``held`` does, and say what is ``left_behind`` there."""
    with held(folder) as hold:
        for line in left_behind(hold):
            say(line)
        yield


def left_behind(hold: Hold) -> Iterator[str]:
    """Sentences about a run that did not end properly; its flow run gets a final state."""
    if (previous := hold.previous) is not None:
        yield f"the last run here did not end properly ({previous})"
        _crash(previous, hold.holder.flow_run)
    for command in hold.ended:
        yield f"ended a command that it had left running: {command}"


def _crash(holder: Holder, present: str) -> None:
    """Set the flow run of a killed run to Crashed, unless the server does not know it or it has a final state.

    A run may have been killed after Prefect made its flow run and before it wrote the id; then the tag names it.
    ``present`` is the flow run of this process.
    """
    named = {"id": {"any_": [holder.flow_run]}} if holder.flow_run else {"tags": {"all_": [holder.tag]}}
    wanted = FlowRunFilter.model_validate(named)
    with get_client(sync_client=True) as client:
        for found in client.read_flow_runs(flow_run_filter=wanted):
            if str(found.id) != present and found.state is not None and not found.state.is_final():
                message = f"it did not end properly: {holder}"
                client.set_flow_run_state(found.id, Crashed(message=message), force=True)


def lost_server(url: str, error: object) -> TransientError | None:
    """The error of a run whose Prefect server has ended, or ``None`` if ``error`` has another reason.

    Prefect wraps the client's error where a flow or a task begins.
    """
    causes = () if isinstance(error, PathfinderError) else (error, getattr(error, "__cause__", None))
    found = next((each for each in causes if isinstance(each, httpx.TransportError)), None)
    message = f"{url}: the Prefect server has ended ({found}); run again: finished stages are not repeated"
    return TransientError(message) if found else None


@contextlib.contextmanager
def server_needed(url: str, hold: Hold) -> Iterator[None]:
    """Raise ``TransientError`` if the Prefect server ends during the block; the next run then ends the flow run."""
    try:
        yield
    except Exception as error:
        if (lost := lost_server(url, error)) is None:
            raise
        hold.lose_server()
        print(file=sys.stderr)  # Prefect's last message, about its log, has no newline
        raise lost from error


def settle(state: State[Any]) -> None:
    """Wait until the server has stored the final state of every task, which it does asynchronously."""
    flow_run = FlowRunFilter.model_validate({"id": {"any_": [state.state_details.flow_run_id]}})
    deadline = time.monotonic() + SETTLE_S
    with get_client(sync_client=True) as client:
        while time.monotonic() < deadline:
            tasks = client.read_task_runs(flow_run_filter=flow_run)
            if all(run.state is not None and run.state.is_final() for run in tasks):
                return
            time.sleep(0.5)
