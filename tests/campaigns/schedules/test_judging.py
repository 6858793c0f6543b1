"""Which messages of a schedule count as true, false and missing."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.campaigns.schedules.notices import Asked, Known, Told, judge

KILL: dict[str, Any] = {"end": "kill", "struck": 110.0, "code": -9}
KILLED = {"subject": "work was killed in all", "cause": "its process was killed: PID 7, since noon: -m flows"}
FAILED = {"subject": "work failed in all", "cause": "work: the disk is full"}
SAID = "work: the disk is full (full output: x)\nfailed or not started: work; correct\n"


def judged(folder: Path, *messages: dict[str, Any], outage: float = 0.0, **run: Any) -> Told:
    """Judge messages about a run that the server knows; it began at 100 s, and its stage at 104 s."""
    log = folder / "log"
    log.write_text(run.pop("said", SAID))
    state, since, code = run.pop("state", "FAILED"), run.pop("since", 111.0), run.pop("code", 1)
    at_work = (104.0, run.pop("last", math.inf))
    process: Any = SimpleNamespace(pid=7, returncode=code)
    asked = Asked(0, "ann", "work", process, log, alive=110.0, ended=111.0, **run)
    sent = [
        (
            cast(float, each.pop("when", 113.0)),
            {"link": "http://x/runs/flow-run/r", "run": "all", "stage": "work", **each},
        )
        for each in map(dict, messages)
    ]
    outages = [(outage, outage + 10)] if outage else []
    return judge([(asked, Known("r", "all", state, since, at_work))], sent, outages)


def test_a_true_message_is_neither_false_nor_missing(tmp_path: Path) -> None:
    assert judged(tmp_path, FAILED) == Told(1, slowest_s=2.0)
    assert judged(tmp_path, KILLED, state="CRASHED", **KILL) == Told(1, slowest_s=3.0)
    published = KILLED | {"stage": "publish", "subject": "publish was killed in all"}
    assert judged(tmp_path, published, state="CRASHED", last=108.0, **KILL) == Told(1, slowest_s=3.0)


@pytest.mark.parametrize(
    ("run", "message", "fault"),
    [
        ({"code": 0, "state": "COMPLETED"}, FAILED, "needs none, which ended with status 0"),
        ({"end": "Ctrl-C", "struck": 110.0, "code": 130, "state": "CRASHED"}, FAILED, "needs none, which Ctrl-C ended"),
        ({}, FAILED | {"link": "http://x/runs/flow-run/other"}, "about nothing in the schedule"),
        ({}, FAILED | {"stage": "other"}, "wrong stage, expected 'work'"),
        ({}, FAILED | {"run": "other"}, "wrong subject, it failed"),
        ({}, FAILED | {"cause": "work: no sign of life"}, "wrong cause, the run printed no such line"),
        ({}, KILLED, "wrong subject, it failed"),
        (KILL, KILLED | {"stage": "", "subject": "all was killed"}, "wrong stage, expected 'work'"),
        (KILL, KILLED | {"stage": "publish", "subject": "publish was killed in all"}, "wrong stage, expected 'work'"),
        (KILL, KILLED | {"cause": "its process was killed: PID 8, since"}, "wrong cause"),
    ],
)
def test_a_message_about_no_such_end_is_false(
    tmp_path: Path, run: dict[str, Any], message: dict[str, Any], fault: str
) -> None:
    (found,) = judged(tmp_path, message, **run).false
    assert fault in found


def test_a_second_message_about_one_end_is_false(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, FAILED, FAILED).false
    assert "told again" in found


def test_a_run_that_failed_before_its_ctrl_c_needs_a_message(tmp_path: Path) -> None:
    assert judged(tmp_path, FAILED, end="Ctrl-C", struck=112.0) == Told(1, slowest_s=2.0)


def test_an_end_without_a_message_in_time_is_missing_unless_the_server_was_away(tmp_path: Path) -> None:
    (none,) = judged(tmp_path, **KILL).missing
    (late,) = judged(tmp_path, FAILED | {"when": 180.0}).missing
    assert (none, late) == (
        "ann's run, which was killed: no message after 60 s",
        "ann's run, which ended with status 1: late message after 60 s",
    )
    assert judged(tmp_path, outage=120.0) == Told(excused=1)
    assert judged(tmp_path, end="Ctrl-C", struck=110.0) == Told()


@pytest.mark.parametrize(
    ("state", "times", "outages", "told"),
    [
        ("CRASHED", [113.0], [], Told(1, slowest_s=2.0)),
        ("CRASHED", [], [], Told(missing=["the stage's run r, CRASHED: no message after 60 s"])),
        ("CRASHED", [], [(102.0, 109.0)], Told(excused=1)),
        ("FAILED", [], [], Told()),
    ],
)
def test_a_stage_in_a_pool_needs_a_message_if_it_crashed(
    state: str, times: list[float], outages: list[tuple[float, float]], told: Told
) -> None:
    assert pooled(state, times, outages) == told


def test_a_stage_in_a_pool_without_a_final_state_is_left_over() -> None:
    assert pooled("PENDING", [], []) == Told(left=["the stage's run r is left PENDING"])


@pytest.mark.parametrize(("state", "times"), [("COMPLETED", [113.0]), ("CRASHED", [113.0, 114.0])])
def test_any_other_message_about_a_stage_in_a_pool_is_false(state: str, times: list[float]) -> None:
    (found,) = pooled(state, times, []).false
    assert f"{state}, message {len(times)}" in found


def pooled(state: str, times: list[float], outages: list[tuple[float, float]]) -> Told:
    """Judge messages about a run of a stage that was ordered at 100 s and ended at 111 s."""
    message = {"link": "http://x/runs/flow-run/r", "run": "work at 1", "subject": "work at 1 crashed"}
    run = Known("r", "work at 1", state, 111.0, (100.0, math.inf))
    return judge([], [(when, message) for when in times], outages, [run])
