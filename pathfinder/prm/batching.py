"""Batches of solutions from many callers: a free thread scores all that wait together, or its share of them.

Callers whose solutions shared a batch usually ask again together. The first of them would then be scored alone while
the others wait. A free thread therefore waits a moment for as many solutions as it scored last, but not after a batch
of one: a single caller that asks for one solution at a time is never delayed.

A small model runs on one core. A second thread then scores other solutions on another core (``threads_for``).
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from pathfinder.core.steps import PRM, Solution, StepScore

BATCH = 64
"""Most solutions of a batch. The scorer's token budget splits it further, so memory does not depend on it."""

_GATHERING = 0.25
"""The longest wait for the callers of the last batch, as a share of the time that it took."""

Scores = list[StepScore]
Score = Callable[[Sequence[Solution]], list[Scores]]


def threads_for(prm: PRM) -> int:
    """How many threads may call ``prm.score`` at once with profit: two for a PathFinder-PRM that runs on one core.

    More than two were not measured; they would wait for each other in Python's interpreter.
    """
    import torch

    from pathfinder.models.model import device
    from pathfinder.prm.scoring import Scorer

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    is_on_one_core = isinstance(prm, Scorer) and device() == "cpu" and torch.get_num_threads() == 1
    return 2 if is_on_one_core and cores > 1 else 1


class FullError(Exception):
    """More solutions wait than the queue may hold."""


class Batcher:
    """Scores solutions of concurrent callers in the order of their arrival, on ``threads`` threads of its own.

    At most ``most_waiting`` solutions wait. With several threads, ``score`` must allow calls at the same time. Use it
    as a context manager: its end refuses what still waits.
    """

    def __init__(self, score: Score, most_waiting: int = 1024, threads: int = 1) -> None:
        self._score, self._most_waiting = score, most_waiting
        self._waiting: deque[tuple[Solution, Future[Scores]]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._busy = 0  # solutions that are being scored
        names = [f"batcher {number}" for number in range(threads)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        self.batches = self.scored = 0

    def __enter__(self) -> Batcher:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._is_closed = True
            for _, future in self._waiting:
                future.cancel()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

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
            self._changed.notify_all()
        return futures

    def _work(self) -> None:
        last, last_s = 1, 0.0  # solutions of this thread's last batch, and its seconds
        while batch := self._next(last, last_s):
            start = time.monotonic()
            try:
                self._finish(batch, self._score([solution for solution, _ in batch]))
            except Exception:  # one solution must not spoil the others: each again, alone
                for entry in batch:
                    try:
                        self._finish([entry], self._score([entry[0]]))
                    except Exception as error:
                        entry[1].set_exception(error)
            last, last_s = len(batch), time.monotonic() - start
            with self._changed:
                self._busy -= len(batch)

    def _next(self, last: int, last_s: float) -> list[tuple[Solution, Future[Scores]]]:
        """The next batch without the solutions whose callers have gone; empty at the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if last > 1:
                    self._changed.wait_for(lambda: self._has_gathered(last), _GATHERING * last_s)
                if self._is_closed:
                    return []
                share = math.ceil((len(self._waiting) + self._busy) / len(self._threads))
                taken = [self._waiting.popleft() for _ in range(min(BATCH, share, len(self._waiting)))]
                if batch := [entry for entry in taken if entry[1].set_running_or_notify_cancel()]:
                    self._busy += len(batch)
                    return batch

    def _has_gathered(self, last: int) -> bool:
        return self._is_closed or len(self._waiting) >= min(last, BATCH)

    def _finish(self, batch: Sequence[tuple[Solution, Future[Scores]]], scores: list[Scores]) -> None:
        with self._changed:
            self.batches += 1
            self.scored += len(batch)
        for (_, future), found in zip(batch, scores, strict=True):
            future.set_result(found)
