"""Retries of tasks by class of error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun

from flows.team.pools.table import Retries
from ground.io import PathfinderError, TransientError

_DELAYS_S = (2.0, 10.0, 30.0)
_JITTER = 0.3


class WorkerLost(PathfinderError, RuntimeError):
    """The worker of a stage, or its machine, is gone."""


def class_of(error: object) -> str:
    """The name of the class of an error, as ``Retries`` has it."""
    if isinstance(error, WorkerLost):
        return "lost"
    return "transient" if isinstance(error, TransientError) or getattr(error, "transient", False) else "error"


def with_retries(task: Task[..., Any], retries: Retries, delays_s: Sequence[float] = _DELAYS_S) -> Task[..., Any]:
    """The task, tried again as often as ``retries`` says for the class of its error.

    ``delays_s`` are the seconds before each attempt; the last one counts for all that follow.
    """
    most = max(retries.transient, retries.lost, retries.error)

    def again(_: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
        allowed: int = getattr(retries, class_of(state.result(raise_on_failure=False)))
        return run.run_count <= allowed

    delays = [*delays_s, *[delays_s[-1]] * most][:most]
    return task.with_options(
        retries=most, retry_delay_seconds=delays, retry_jitter_factor=_JITTER, retry_condition_fn=again
    )
