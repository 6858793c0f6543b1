"""The report of a run that could not report its own end, by its guardian (flows/local/guardian.py).

It uses the server's HTTP interface: on a machine with a load of 16 on two cores, the import of Prefect took 15 s.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from flows import server
from flows.team.notices.notice import MOST_LINES, killed_notice

_LOOK_S, _WORKER_S = 1.0, 20.0  # a worker calls the flow's hook itself; on a busy machine it needs seconds for that
_ENDING = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED", "CANCELLING")
_BEGUN = ("Running", "Retrying", "AwaitingRetry")
"""Prefect's names of a task's states between its start and its end."""


def report_killed(root: str, flow_run_id: str, api: str, cause: str, headers: Mapping[str, str]) -> None:
    """Set a run to Crashed and send its event, unless it has a final state, its worker did so, or the server is away.

    ``root`` is the folder of the run, ``api`` the address of the server with the ``headers`` that it demands, and
    ``cause`` describes what ended the run. If the server refuses, the next run reports it.
    """
    with contextlib.suppress(httpx.HTTPError, OSError), server.client(api, headers) as http:
        if (run := _unreported(http, flow_run_id)) is None:
            return
        crash = {"type": "CRASHED", "name": "Crashed", "message": cause}
        _answer(http.post(f"/flow_runs/{flow_run_id}/set_state", json={"state": crash, "force": True}))
        this = {"flow_runs": {"id": {"any_": [flow_run_id]}}}
        begun = {"task_runs": {"state": {"name": {"any_": _BEGUN}}, "subflow_runs": {"exists_": False}}}
        stages = sorted(task["name"] for task in _answer(http.post("/task_runs/filter", json=this | begun)))
        last = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "limit": MOST_LINES, "sort": "TIMESTAMP_DESC"}
        logs = _answer(http.post("/logs/filter", json=last))
        lines = [line for log in reversed(logs) for line in log["message"].splitlines()]
        found = killed_notice(run["name"], stages, cause, Path(root), lines)
        event = found.as_event(flow_run_id, run["tags"], state="Crashed")
        now = {"id": str(uuid4()), "occurred": datetime.now(UTC).isoformat()}
        http.post("/events", json=[event | now]).raise_for_status()


def _unreported(http: httpx.Client, flow_run_id: str) -> dict[str, Any] | None:
    """The run, unless it has a final state or gets one in time from the worker that started it."""
    deadline = time.monotonic() + _WORKER_S
    while (run := _answer(http.get(f"/flow_runs/{flow_run_id}")))["state_type"] not in _ENDING:
        if run["deployment_id"] is None or time.monotonic() > deadline:
            return dict(run)
        time.sleep(_LOOK_S)
    return None


def _answer(response: httpx.Response) -> Any:
    return response.raise_for_status().json()
