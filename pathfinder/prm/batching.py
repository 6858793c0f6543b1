"""Batches of solutions from many callers: a free model scores all that wait together.

Callers whose solutions shared a batch usually ask again together. The first of them would then be scored alone while
the others wait. A free model therefore waits a moment for as many solutions as it scored last, but not after a batch of
one: a single caller that asks for one solution at a time is never delayed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from pathfinder.core.steps import Solution, StepScore

BATCH = 64
"""Most solutions of a batch. The scorer's token budget splits it further, so memory does not depend on it."""

_GATHERING = 0.25
"""The longest wait for the callers of the last batch, as a share of the time that it took."""

Scores = list[StepScore]
Score = Callable[[Sequence[Solution]], list[Scores]]


class FullError(Exception):
    """More solutions wait than the queue may hold."""


class Batcher:
    """Scores solutions of concurrent callers in the order of their arrival, on one thread of its own.

    At most ``most_waiting`` solutions wait. Use it as a context manager: its end refuses what still waits.
    """

    def __init__(self, score: Score, most_waiting: int = 1024) -> None:
        self._score, self._most_waiting = score, most_waiting
        self._waiting: deque[tuple[Solution, Future[Scores]]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._last, self._last_s = 1, 0.0  # solutions of the last batch, and its seconds
        self.batches = self.scored = 0

    def __enter__(self) -> Batcher:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._is_closed = True
            for _, future in self._waiting:
                future.cancel()
            self._changed.notify()
        self._thread.join()

    @property
    def waiting(self) -> int:
        """The number of solutions that wait."""
        return len(self._waiting)

    def submit(self, solutions: Sequence[Solution]) -> list[Future[Scores]]:
        """Queue all solutions or none; raises ``FullError`` if they do not all fit."""
        futures = [Future[Scores]() for _ in solutions]
        with self._changed:
            if self._is_closed or len(self._waiting) + len(solutions) > self._most_waiting:
                raise FullError
            self._waiting.extend(zip(solutions, futures, strict=True))
            self._changed.notify()
        return futures

    def _work(self) -> None:
        while batch := self._next():
            start = time.monotonic()
            try:
                self._finish(batch, self._score([solution for solution, _ in batch]))
            except Exception:  # one solution must not spoil the others: each again, alone
                for entry in batch:
                    try:
                        self._finish([entry], self._score([entry[0]]))
                    except Exception as error:
                        entry[1].set_exception(error)
            self._last, self._last_s = len(batch), time.monotonic() - start

    def _next(self) -> list[tuple[Solution, Future[Scores]]]:
        """The next batch without the solutions whose callers have gone; empty at the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if self._last > 1:
                    self._changed.wait_for(self._has_gathered, _GATHERING * self._last_s)
                if self._is_closed:
                    return []
                taken = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            if batch := [entry for entry in taken if entry[1].set_running_or_notify_cancel()]:
                return batch

    def _has_gathered(self) -> bool:
        return self._is_closed or len(self._waiting) >= min(self._last, BATCH)

    def _finish(self, batch: Sequence[tuple[Solution, Future[Scores]]], scores: list[Scores]) -> None:
        self.batches += 1
        self.scored += len(batch)
        for (_, future), found in zip(batch, scores, strict=True):
            future.set_result(found)
