"""The Prefect tasks of a run, and how often each is tried again: running, pushing and publishing stages."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prefect import Task, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.assets import Asset
from prefect.assets.core import AssetProperties
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.futures import PrefectFuture
from prefect.tasks import MaterializingTask

from evidence.dvc.lock import dvc_lock, outs_of
from evidence.dvc.pipeline import Stage
from evidence.record.identity import is_code
from evidence.remote.guard import Guard
from flows.local.dvc import Cancelled
from flows.places import Places, Retries, class_of
from flows.terminal import Outcome, Terminal, metrics_table, stage_log
from ground.io import PathfinderError, TransientError
from ground.text import plain_message

_PUSH_EVERY_S = 60.0
_DELAYS_S = (2.0, 10.0, 30.0)
_STORE_DELAYS_S = (5.0, 20.0, 60.0, 120.0)  # a store that is restarted comes back within minutes
_JITTER = 0.3
_ASSETS = "dvc://pathfinder-prm/"
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9._/@=-]")


def with_retries(
    task: Task[..., Any],
    retries: Retries,
    delays_s: Sequence[float] = _DELAYS_S,
    say: Callable[[str, str], None] = lambda *_: None,
) -> Task[..., Any]:
    """The task, which may be submitted once, tried again as often as ``retries`` says for each class of error.

    ``delays_s`` are the seconds before each attempt; the last one counts for all that follow. ``say`` gets the name of
    the task's run and a line with the cause of each further attempt.
    """
    most, tried = retries.transient + retries.lost + retries.error, Counter[str]()

    def again(_: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
        error = state.result(raise_on_failure=False)
        kind = class_of(error)
        tried[kind] += 1
        allowed: int = getattr(retries, kind)
        if tried[kind] <= allowed:
            say(run.name, f"is tried again ({tried[kind]} of {allowed}): {error}")
        return tried[kind] <= allowed

    return task.with_options(
        retries=most, retry_delay_seconds=[*delays_s], retry_jitter_factor=_JITTER, retry_condition_fn=again
    )


def ended(future: PrefectFuture[Any]) -> State[Any]:
    """The final state of a task, which this waits for; raises ``TransientError`` if the server ends before the task."""
    try:
        future.wait()
    except ConcurrencySlotAcquisitionError as error:  # Prefect asks its server for a slot of each tag of a task
        raise TransientError(
            f"the Prefect server does not respond ({error.__cause__}); run again: finished stages are not repeated"
        ) from error
    return future.state


def asset(path: str) -> Asset:
    """Prefect's asset at a path of the project; characters that its key may not have become ``_``."""
    return Asset(key=_ASSETS + _NOT_IN_KEYS.sub("_", path), properties=AssetProperties(name=path))


def stage_task(places: Places, terminal: Terminal, guard: Guard | None, definition: Stage) -> Task[..., Any]:
    """The task that brings a stage up to date; with a ``guard``, a published result is fetched before.

    Its assets are the outs that the stage makes, and the outs and data that it reads.
    """
    root = places.root

    def stage(name: str, force: bool) -> Outcome:
        start, logger = time.monotonic(), get_run_logger()
        with stage_log(root, name) as log, terminal.running(name):

            def on_line(line: str) -> None:
                terminal.print(name, line)
                log(line)
                logger.info("%s", line)

            if guard is not None and not force:
                guard.provide_stage(definition)
            state = places.run(name, force, on_line)
        for path in figures_of(definition) if state != "up to date" else ():
            key = re.sub(r"[^a-z0-9]+", "-", path.removesuffix(".json").lower())
            create_markdown_artifact(metrics_table(root / path), key=key, description=path)
        for path, md5 in _made(root, name).items():
            asset(path).add_metadata({"stage": name, "state": state, "path": path, "md5": md5})
        return Outcome(name, state, time.monotonic() - start, definition.all_outs)

    task = MaterializingTask(
        stage,
        assets=[*map(asset, definition.all_outs)],
        asset_deps=[asset(dep) for dep in definition.deps if not is_code(dep)],
        materialized_by="dvc",
        task_run_name="{name}",
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    return with_retries(task, places.retries(definition.name), say=terminal.print)


def _made(root: Path, stage: str) -> dict[str, str]:
    """The outs of a stage, for its events; none if the lock cannot be read, because events must not fail a stage."""
    with contextlib.suppress(PathfinderError, OSError, ValueError), dvc_lock(root):
        return outs_of(root, stage)
    return {}


def figures_of(stage: Stage) -> tuple[str, ...]:
    """Files of figures: the metrics and the other JSON files below metrics/, without the training logs."""
    found = (path for path in stage.outs if path.startswith("metrics/") and path.endswith(".json"))
    return (*stage.metrics, *(path for path in found if not path.endswith("_log.json")))


class Pushes:
    """The stages to push, in one call of DVC a minute: a call takes two seconds of CPU time that stages need."""

    def __init__(self, push: Callable[..., None], terminal: Terminal) -> None:
        self._push, self._terminal = push, terminal
        self._waiting: list[str] = []
        self._sent: list[tuple[list[str], PrefectFuture[Any]]] = []
        self._last = -_PUSH_EVERY_S

    def add(self, name: str) -> None:
        """Add a stage that succeeded."""
        self._waiting.append(name)
        if self.due_in() == 0:
            self.send()

    def due_in(self) -> float | None:
        """Seconds until the next push; ``None`` if no stage waits."""
        return max(0.0, self._last + _PUSH_EVERY_S - time.monotonic()) if self._waiting else None

    def end(self) -> list[str]:
        """Push the remaining stages and wait for all pushes; returns the stages that could not be pushed."""
        self.send()
        return [name for names, future in self._sent if not ended(future).is_completed() for name in names]

    def send(self) -> None:
        """Push the waiting stages now."""
        if not self._waiting:
            return
        names, self._waiting = self._waiting, []
        title = ", ".join(names)
        task = store_task(self._push, f"push {title}", f"{title} could not be pushed", self._terminal)
        self._sent.append((names, task.submit(*names)))
        self._last = time.monotonic()


def store_task(work: Callable[..., Any], title: str, failure: str, terminal: Terminal) -> Task[..., Any]:
    """A task that writes to the store under a title; only transient errors are tried again.

    The cause is printed after the sentence ``failure``: Prefect's log has a traceback, which the console does not show.
    """

    def attempt(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except Cancelled:
            raise
        except Exception as error:
            message = plain_message(error) or f"{type(error).__name__}: {error}"
            terminal.print("storage", f"{failure}: {message}", bad=True)
            raise

    name = title.partition(" ")[0]
    task = Task(attempt, name=name, task_run_name=lambda: title, cache_policy=NO_CACHE, persist_result=False)
    return with_retries(task, Retries(transient=len(_STORE_DELAYS_S), lost=0), _STORE_DELAYS_S)
