"""The task of a stage with its retries by class of error."""

from __future__ import annotations

from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun

from flows.pools.table import Retries
from flows.pushes import RETRY_DELAYS_S
from pathfinder.core.io import PathfinderError, TransientError


class WorkerLost(PathfinderError, RuntimeError):
    """The worker of a stage, or its machine, is gone."""


def class_of(error: object) -> str:
    """The name of the class of an error, as ``Retries`` has it."""
    if isinstance(error, WorkerLost):
        return "lost"
    return "transient" if isinstance(error, TransientError) or getattr(error, "transient", False) else "error"


def with_retries(task: Task[..., Any], retries: Retries) -> Task[..., Any]:
    """The task, tried again as often as ``retries`` says for the class of its error."""
    most = max(retries.transient, retries.lost, retries.error)

    def again(_: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
        allowed: int = getattr(retries, class_of(state.result(raise_on_failure=False)))
        return run.run_count <= allowed

    delays = [*RETRY_DELAYS_S, *[RETRY_DELAYS_S[-1]] * most][:most]
    return task.with_options(retries=most, retry_delay_seconds=delays, retry_condition_fn=again)
