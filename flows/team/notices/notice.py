"""The message about a run that failed: the stage, its last lines, and what to do; and the report of a guardian.

It uses the server's HTTP interface: on a machine with a load of 16 on two cores, the import of Prefect took 15 s.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from flows import server
from flows.terminal import log_path

EVENT = "pathfinder.run.failed"
MOST_LINES = 10
TRACEBACK = "\nTraceback (most recent call last)"
"""A line in Prefect's log of every failed run, even if the state of the run has the reason in one line."""
_LONGEST_LINE = 500
_LONGEST_LABEL = 200
_REMEDIES = (
    (r"time limit", "find out why the stage hangs, or raise its limit in infra/resources.yaml"),
    (r"No space left on device|Errno 28", "make room on the disk, then run again: finished stages are kept"),
    (r"\bPromotionRefused\b", "do what the reasons say, run the nightly again, then promote the branch that it makes"),
    (r"is busy, it is being blocked by", "wait for the named process or end it, then run again"),
    (r"not pushed:|no answer from the store|connect|timed? ?out", "check that store and server answer, then repeat"),
    (r"\bAuditFailed\b", "`pathfinder lineage check --remote` explains each line; `pathfinder pull` restores a run"),
    (r"gates failed", "correct the stage that wrote the file, or a wrong bound under `validate` in params.yaml"),
    (r"\bkilled\b|exited with (-9|137)\b", "the process was killed, often for lack of memory; run again"),
)
_LOOK_S, _WORKER_S = 1.0, 20.0  # a worker calls the flow's hook itself; on a busy machine it needs seconds for that
_ENDING = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED", "CANCELLING")
_BEGUN = ("Running", "Retrying", "AwaitingRetry")
"""Prefect's names of a task's states between its start and its end."""
_UNWANTED = {"type": "CANCELLED", "message": "the run that waited for it was killed"}
_OTHERWISE = "correct the cause, then run again: stages that succeeded are not repeated"


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about one run: its name, what failed, why, the last lines that were printed, and the remedy.

    ``happened`` is "failed" or "was killed".
    """

    run: str
    stage: str
    cause: str
    lines: tuple[str, ...]
    remedy: str
    happened: str = "failed"

    @property
    def subject(self) -> str:
        """One line."""
        return f"{self.stage} {self.happened} in {self.run}" if self.stage else f"{self.run} {self.happened}"

    @property
    def text(self) -> str:
        """The whole message without the link, which the server adds."""
        return "\n".join([self.cause, *(f"    {line}" for line in self.lines), f"Remedy: {self.remedy}"])

    def as_event(self, flow_run: str, tags: Iterable[str], **more: object) -> dict[str, Any]:
        """Prefect's event about the flow run, whose tags and labels the automations of the server read.

        The payload has the message ready to be sent, and ``more``.
        """
        named = {"prefect.resource.id": f"prefect.flow-run.{flow_run}", "prefect.resource.name": self.run}
        role = {"prefect.resource.role": "tag"}
        message = {**asdict(self), "lines": list(self.lines), "subject": self.subject, "text": self.text}
        return {
            "event": EVENT,
            "resource": {**named, "prefect.state-message": self.cause[:_LONGEST_LABEL]},
            "related": [{**role, "prefect.resource.id": f"prefect.tag.{name}"} for name in sorted(tags)],
            "payload": {**message, **more},
        }


def notice(run: str, error: BaseException | None, message: str, lines: Sequence[str]) -> Notice:
    """The notice of a run that ended with ``error``; ``message`` is its final state's, and ``lines`` end its log."""
    failures: dict[str, str] = getattr(error, "failures", {})
    told = (f"{name}: {reason.removeprefix(f'{name}: ')}" for name, reason in failures.items())
    cause = "; ".join(told) or message
    shown, advice = _shown(Path.cwd(), [*failures], lines), remedy(f"{type(error).__name__}: {cause}")
    return Notice(run, ", ".join(failures), cause, shown, advice)


def killed_notice(run: str, stages: Sequence[str], cause: str, root: Path, lines: Sequence[str]) -> Notice:
    """The notice of a run that its guardian reports: ``stages`` ran in ``root``, and ``lines`` end the run's log."""
    what, happened = cause.partition(":")[0], "was killed" if cause.startswith("its process was killed") else "failed"
    return Notice(run, ", ".join(stages), cause, _shown(root, stages, lines), remedy(what), happened)


def remedy(text: str) -> str:
    """Advice about a failure, in one line."""
    return next((advice for pattern, advice in _REMEDIES if re.search(pattern, text)), _OTHERWISE)


def _shown(root: Path, stages: Sequence[str], lines: Sequence[str]) -> tuple[str, ...]:
    """The last lines that the first of ``stages`` printed or, without any, the last of ``lines``."""
    for stage in stages[:1]:
        with contextlib.suppress(OSError):
            lines = (root / log_path(stage)).read_text(encoding="utf-8", errors="replace").splitlines() or lines
    return tuple(line[:_LONGEST_LINE] for line in lines[-MOST_LINES:])


def report_killed(root: str, flow_run_id: str, api: str, cause: str, headers: Mapping[str, str]) -> None:
    """Set a run to Crashed and send its event, unless it has a final state, its worker did so, or the server is away.

    The stages that it ordered from pools and that no worker has begun are cancelled, since nobody waits for them.
    ``root`` is the folder of the run, ``api`` the address of the server with the ``headers`` that it demands, and
    ``cause`` describes what ended the run. If the server refuses, the next run reports it.
    """
    with contextlib.suppress(httpx.HTTPError, OSError), server.client(api, headers) as http:
        waiting = {"parent_flow_run_id": {"any_": [flow_run_id]}, "state": {"type": {"any_": ["SCHEDULED", "PENDING"]}}}
        for stage in _answer(http.post("/flow_runs/filter", json={"flow_runs": waiting})):
            _answer(http.post(f"/flow_runs/{stage['id']}/set_state", json={"state": _UNWANTED, "force": True}))
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
