"""The tasks that push outputs of stages, a list of stages at a time, and publish what was pushed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture

from flows.dvc import Cancelled, Dvc
from flows.team.pools.retries import with_retries
from flows.team.pools.table import Retries
from flows.terminal import Terminal
from ground.remote import Commit
from ground.text import plain_message

_PUSH_EVERY_S = 60.0
_DELAYS_S = [5.0, 20.0, 60.0, 120.0]  # a store that is restarted comes back within minutes


class Pushes:
    """The stages to push: all that ended since the last push go in one call of DVC.

    A call takes two seconds of CPU time that stages need, so calls are a minute apart.
    """

    def __init__(self, push: Task[..., None]) -> None:
        self._push = push
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
        self._sent.append((names, self._push.submit(names, ", ".join(names))))
        self._last = time.monotonic()


def push_task(dvc: Dvc, terminal: Terminal) -> Task[..., None]:
    """The task that pushes a list of stages; it prints the cause of every attempt that fails.

    Only transient failures are tried again.
    """

    def push(names: Sequence[str], title: str) -> None:
        with _printed(terminal, title):
            dvc.push(*names)

    task = Task(push, name="push", task_run_name="push {title}", cache_policy=NO_CACHE, persist_result=False)
    return with_retries(task, Retries(transient=len(_DELAYS_S), lost=0), _DELAYS_S)


def publish_task(publish: Callable[[], Commit], terminal: Terminal) -> Task[..., Commit]:
    """The task that appends a manifest to the remote's log; it is tried again as a push is."""

    def publish_manifest() -> Commit:
        with _printed(terminal, "storage", "the run could not be published: "):
            return publish()

    task = Task(publish_manifest, name="publish", task_run_name="publish", cache_policy=NO_CACHE, persist_result=False)
    return with_retries(task, Retries(transient=len(_DELAYS_S), lost=0), _DELAYS_S)


@contextlib.contextmanager
def _printed(terminal: Terminal, source: str, beginning: str = "") -> Iterator[None]:
    """Print the cause if the block fails: Prefect's log has the traceback, but the console does not show it."""
    try:
        yield
    except Cancelled:
        raise
    except Exception as error:
        message = plain_message(error) or f"{type(error).__name__}: {error}"
        terminal.print(source, f"{beginning}{message}", bad=True)
        raise


def ended(future: PrefectFuture[Any]) -> State[Any]:
    """The final state of a task, which this waits for."""
    future.wait()
    return future.state
