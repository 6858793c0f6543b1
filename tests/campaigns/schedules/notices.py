"""The messages about people's runs in a schedule, compared with the true ends of the runs."""

from __future__ import annotations

import base64
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

DUE_S, LATEST_S = 60.0, 120.0
"""A message that comes later than the first is missing; the server sends its last ones, of lost machines, before the
second: after 90 s without a heartbeat."""
_FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
_STORED_S = 5.0  # the server writes the states of tasks every few seconds

Outages = Sequence[tuple[float, float]]
"""From when to when no server answered, in seconds since 1970."""


@dataclass
class Asked:
    """A person's run: its process, its log from ``start`` on, the stage that it asks for, and how it ended.

    ``tag`` is the one of its flow run, and ``is_known`` if the server has that. ``end`` is "itself", "kill", "Ctrl-C",
    or "campaign" if the schedule ended before the run. Times are in seconds since 1970: of the kill or the Ctrl-C, of
    the last sign of life, and of the end.
    """

    seed: int
    person: str
    stage: str
    process: subprocess.Popen[bytes]
    log: Path
    start: int = 0
    tag: str = ""
    is_known: bool = False
    end: str = "itself"
    struck: float = math.inf
    alive: float = 0.0
    ended: float = math.inf

    def look(self, tag: str = "", flow_run: str = "") -> int | None:
        """Note whether the run has ended, and the ``tag`` and flow run in its lock; returns the exit status."""
        code = self.process.poll()
        if code is None:
            self.tag, self.alive, self.is_known = self.tag or tag, time.time(), self.is_known or bool(flow_run)
        self.ended = self.ended if code is None else min(self.ended, time.time())
        return code

    def strike(self, end: str) -> None:
        """End the run as a machine (kill), as its person at the terminal (Ctrl-C), or as the campaign does."""
        numbers = {"kill": signal.SIGKILL, "Ctrl-C": signal.SIGINT, "campaign": signal.SIGTERM}
        if self.process.poll() is None and self.end == "itself":
            self.end, self.struck = end, time.time()
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, numbers[end]) if end == "kill" else os.killpg(self.process.pid, numbers[end])

    def said(self) -> str:
        """The run's output, with single spaces."""
        return " ".join(self.log.read_bytes()[self.start :].decode(errors="replace").split())


@dataclass(frozen=True)
class Known:
    """The Prefect server's record of a run: id, name, last state with its time, and the time of its stage at work."""

    id: str
    name: str
    state: str
    since: float
    at_work: tuple[float, float] = (math.inf, math.inf)


@dataclass
class Told:
    """The messages about one schedule, and what was wrong about them.

    ``slowest_s`` is from a kill or a run's final state to the message. The server was away when the ``excused`` runs
    ended. ``left`` are the stage's runs in a pool without a final state.
    """

    notices: int = 0
    false: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    excused: int = 0
    slowest_s: float = 0.0
    left: list[str] = field(default_factory=list)


def known(url: str, asked: Asked) -> Known | None:
    """The record of a run on the server at ``url``; ``None`` if it has none."""
    if not asked.tag:
        return None
    this = {"flow_runs": {"tags": {"all_": [asked.tag]}}}
    for run in _post(url, "flow_runs", this):
        tasks = [task for task in _post(url, "task_runs", this) if task["name"] == asked.stage and task["start_time"]]
        starts, ends = ([_seconds(task[name]) for task in tasks] for name in ("start_time", "end_time"))
        at_work = (min(starts), max(ends)) if tasks else (math.inf, math.inf)
        state = run["state"]
        return Known(run["id"], run["name"], state["type"], _seconds(state["timestamp"]), at_work)
    return None


def in_pools(url: str) -> list[tuple[int, Known]]:
    """The newest runs of the stage in a pool, each with the seed of its schedule; ``at_work`` begins with the order."""
    wanted = {"flows": {"name": {"any_": ["stage"]}}, "sort": "EXPECTED_START_TIME_DESC"}
    found = []
    for run in _post(url, "flow_runs", wanted):
        order = json.loads(base64.b64decode(run["parameters"]["order"]["payload"]))
        at_work, since = (_seconds(run["created"]), math.inf), _seconds(run["state"]["timestamp"])
        seed = int(order["params"].partition(":")[2] or 0)
        found.append((seed, Known(run["id"], run["name"], run["state"]["type"], since, at_work)))
    return found


def judge(
    runs: Sequence[tuple[Asked, Known | None]],
    messages: Sequence[tuple[float, Mapping[str, Any]]],
    outages: Outages,
    in_pools: Sequence[Known] = (),
) -> Told:
    """Compare the messages with the ends of the ``runs`` and of the stage's runs ``in_pools``; each is about one."""
    found, left = Told(len(messages)), list(messages)
    for other in in_pools:
        own = [each for each in left if str(each[1].get("link")).endswith(f"/{other.id}")]
        left = [each for each in left if each not in own]
        _judge_in_pool(found, other, own, outages)
    for asked, run in runs:
        own = [each for each in left if run and str(each[1].get("link")).endswith(f"/{run.id}")]
        left = [each for each in left if each not in own]
        if asked.end != "campaign":
            _judge_run(found, asked, run, own, outages)
    found.false += [f"about nothing in the schedule: {_short(message)}" for _, message in left]
    return found


def _judge_in_pool(found: Told, run: Known, own: Sequence[tuple[float, Mapping[str, Any]]], outages: Outages) -> None:
    """Compare the messages about a run of the stage in a pool; the one that has crashed needs one."""
    is_due, who = run.state == "CRASHED", f"the stage's run {run.id}"
    if run.state not in _FINAL:
        found.left.append(f"{who} is left {run.state}")
    for number, (when, message) in enumerate(own):
        if not is_due or number or message["run"] != run.name:
            found.false.append(f"{who}, {run.state}, message {number + 1}: {_short(message)}")
        found.slowest_s = max(found.slowest_s, round(when - run.since, 1))
    if is_due and not [when for when, _ in own if when < run.since + DUE_S]:
        if any(first < run.since + DUE_S and last > run.at_work[0] for first, last in outages):
            found.excused += not own
        else:
            found.missing.append(f"{who}, {run.state}: {'late' if own else 'no'} message after {DUE_S:.0f} s")


def _judge_run(
    found: Told,
    asked: Asked,
    run: Known | None,
    own: Sequence[tuple[float, Mapping[str, Any]]],
    outages: Outages,
) -> None:
    who, end = f"{asked.person}'s run", _end(asked, run)
    for number, (when, message) in enumerate(own):
        if not end:
            found.false.append(f"{who} needs none, {_how(asked)}: {_short(message)}")
        elif number:
            found.false.append(f"{who}, told again: {_short(message)}")
        elif run and (fault := next(_faults(asked, run, end, message), "")):
            found.false.append(f"{who}, {fault}: {_short(message)}")
        if end and run:
            found.slowest_s = max(found.slowest_s, round(when - min(asked.struck, run.since), 1))
    if end and not [when for when, _ in own if when < asked.ended + DUE_S]:
        if any(first < asked.ended + DUE_S and last > asked.alive for first, last in outages):
            found.excused += not own
        else:
            found.missing.append(f"{who}, {_how(asked)}: {'late' if own else 'no'} message after {DUE_S:.0f} s")


def _end(asked: Asked, run: Known | None) -> str:
    """The end that a message must name; empty if the run needs no message."""
    if run is None or asked.process.returncode == 0 or run.state == "COMPLETED":
        return ""
    if asked.end == "itself" or (run.state in ("FAILED", "CRASHED") and run.since < asked.struck):
        return "failed"
    return "was killed" if asked.end == "kill" else ""


def _faults(asked: Asked, run: Known, end: str, message: Mapping[str, Any]) -> Iterator[str]:
    """The faults of a message about a run that needs one."""
    stage, cause, said = str(message["stage"]), " ".join(str(message["cause"]).split()), asked.said()
    expected = {asked.stage if f"failed or not started: {asked.stage}" in said else ""}
    if end == "was killed":
        first, last = run.at_work
        expected = {asked.stage} if first < asked.struck < last + _STORED_S else set()
        expected |= {""} if not first + _STORED_S < asked.struck < last else set()
        expected |= {"publish", f"push {asked.stage}"} if asked.struck > last else set()  # tasks after the stage
    if lost := end == "failed" and cause.startswith(f"the Prefect server ended: PID {asked.process.pid}, since "):
        expected |= {asked.stage}  # its guardian reported it, by the stages that were at work
    if stage not in expected:
        yield f"wrong stage, expected {' or '.join(map(repr, sorted(expected)))}"
    if message["run"] != run.name or message["subject"] != (
        f"{stage} {end} in {run.name}" if stage else f"{run.name} {end}"
    ):
        yield f"wrong subject, it {end}"
    if end == "was killed" and not cause.startswith(f"its process was killed: PID {asked.process.pid}, since "):
        yield "wrong cause"
    reason = "the Prefect server has ended" if lost else cause.rpartition("encountered an exception: ")[2]
    if end == "failed" and (reason.partition(": ")[2] or reason)[-60:] not in said:
        yield "wrong cause, the run printed no such line"


def _how(asked: Asked) -> str:
    ends = {"itself": f"which ended with status {asked.process.returncode}", "kill": "which was killed"}
    return ends.get(asked.end, f"which {asked.end} ended")


def _short(message: Mapping[str, Any]) -> str:
    return f"{message.get('subject')}: {message.get('cause')}"[:300]


def _post(url: str, what: str, wanted: Mapping[str, Any]) -> Any:
    return httpx.post(f"{url}/{what}/filter", json=wanted, timeout=60).raise_for_status().json()


def _seconds(time_of: str | None) -> float:
    return datetime.fromisoformat(time_of).timestamp() if time_of else math.inf
