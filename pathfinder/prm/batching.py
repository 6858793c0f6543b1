"""Batches of solutions from many callers: a free thread scores waiting solutions, in fair order and for a short time.

Each solution has a rank: the tokens of its request up to its own end, added to the rank being scored when the request
arrives. The lowest rank is next, so a large request waits for a bounded amount of later work
(self-clocked fair queueing, Golestani 1994). A batch takes about ``SLICE`` seconds. A long solution is scored in parts
of this time, one at a time. Its next part starts when no short solution waits or is being scored, or after ``PATIENCE``
batches of short ones.

Callers whose solutions shared a batch usually ask again together. A free thread therefore waits a moment for as many
solutions as it scored last, but not after a batch of one.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from pathfinder.core.steps import PRM, Solution, StepScore

BATCH = 64
"""The most solutions in a batch. The scorer's token budget splits it further, so memory does not depend on it."""

UNIT = 1024
"""Tokens (``tokens_of``) of the longest solution that shares batches, and of the smallest limit of a batch."""

SLICE = 0.05
"""Seconds that a batch, or a part of a long solution, should take."""

PATIENCE = 8
"""The most batches of short solutions that a long solution waits for before its next part is scored."""

BYTES_PER_TOKEN = 3
"""Tokens are estimated, because counting them takes time: one per three bytes of UTF-8."""

_PER_SOLUTION, _PER_STEP = 64, 16  # tokens of the system text and the chat template, and of a step's captions
_GATHERING = 0.25
"""The longest wait for the callers of the last batch, as a share of the batch's time."""

Scores = list[StepScore]
Score = Callable[[Sequence[Solution]], list[Scores]]
Parts = Callable[[Solution, float], Iterator[Scores]]
"""Scores of a solution's next steps, in parts of about this many seconds; nothing if it is too long for the model."""


def tokens_of(solution: Solution) -> int:
    """An estimate of the tokens that a solution costs, without a tokenizer."""
    size = sum(len(text.encode("utf-8", "replace")) for text in (solution.problem, *solution.steps))
    return _PER_SOLUTION + size // BYTES_PER_TOKEN + _PER_STEP * len(solution.steps)


def threads_for(prm: PRM) -> int:
    """The number of threads that pays off: two for a PathFinder-PRM that runs on one core.

    More than two were not measured; they would wait for each other in Python's interpreter.
    """
    import torch

    from pathfinder.models.model import device
    from pathfinder.prm.scoring import Scorer

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    is_on_one_core = isinstance(prm, Scorer) and device() == "cpu" and torch.get_num_threads() == 1
    return 2 if is_on_one_core and cores > 1 else 1


def parts_of(prm: PRM) -> Parts | None:
    """The method of ``prm`` that scores a solution in parts; None for a PRM that scores whole solutions only."""
    from pathfinder.prm.scoring import Scorer

    return prm.parts if isinstance(prm, Scorer) else None


class FullError(Exception):
    """The waiting solutions would have more tokens than the queue may hold."""


@dataclass(order=True, slots=True)
class _Entry:
    """A waiting solution, or one whose ``parts`` are being scored. The lowest ``rank`` is next."""

    rank: int
    number: int
    solution: Solution = field(compare=False)
    tokens: int = field(compare=False)
    future: Future[Scores] = field(compare=False, default_factory=Future)
    parts: Iterator[Scores] | None = field(compare=False, default=None)
    scores: Scores = field(compare=False, default_factory=list)


class Batcher:
    """Scores solutions of concurrent callers in fair order, on ``threads`` separate threads.

    The solutions that wait or are being scored have at most ``most_tokens`` tokens (``tokens_of``). Cancelling a future
    frees its tokens at once; no later batch contains the solution, and no later part of it is scored. ``parts`` scores
    a long solution in parts; without it a long solution is one batch. With several threads, ``score`` must allow calls
    at the same time. Use it as a context manager: its end refuses all waiting solutions.
    """

    def __init__(self, score: Score, parts: Parts | None = None, most_tokens: int = 1 << 18, threads: int = 1) -> None:
        self._score, self._parts, self._most_tokens = score, parts, most_tokens
        self._short: list[_Entry] = []
        self._long: list[_Entry] = []
        self._has_long = False  # a long solution is being scored
        self._since_long = 0  # batches of short solutions since the last part of a long one
        self._numbers, self._rank = itertools.count(), 0
        self._tokens, self._room = 0, UNIT
        self._changed = threading.Condition()
        self.is_closed = False
        self._busy = 0  # solutions that are being scored
        names = [f"batcher {number}" for number in range(threads)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        self.batches = self.scored = self.abandoned = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Cancel all waiting solutions, and refuse further ones; what is being scored ends with its batch or part."""
        with self._changed:
            self.is_closed = True
            for entry in (*self._short, *self._long):
                entry.future.cancel()
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """The number of solutions that wait."""
        with self._changed:
            return sum(not entry.future.cancelled() for entry in (*self._short, *self._long))

    @property
    def tokens(self) -> int:
        """The tokens of the solutions that wait or are being scored."""
        return self._tokens

    def refuse(self, tokens: int) -> None:
        """Raise ``FullError`` if a request of this many tokens does not fit into the queue now."""
        if self.is_closed or self._tokens + tokens > self._most_tokens:
            raise FullError

    def submit(self, solutions: Sequence[Solution]) -> list[Future[Scores]]:
        """Queue all solutions or none; raises ``FullError`` if they do not all fit."""
        costs = [tokens_of(solution) for solution in solutions]
        with self._changed:
            self.refuse(sum(costs))
            ranks = itertools.accumulate(costs, initial=self._rank)
            next(ranks)
            entries = [_Entry(*item) for item in zip(ranks, self._numbers, solutions, costs, strict=False)]
            for queue in (self._short, self._long):
                queue[:] = [entry for entry in queue if not entry.future.cancelled()]
                heapq.heapify(queue)
            for entry in entries:
                heapq.heappush(self._short if entry.tokens <= UNIT else self._long, entry)
            self._tokens += sum(costs)
            self._changed.notify_all()
        for entry in entries:
            entry.future.add_done_callback(partial(self._release, entry.tokens))
        return [entry.future for entry in entries]

    def _release(self, tokens: int, future: Future[Scores]) -> None:
        with self._changed:
            self._tokens -= tokens
            self.abandoned += future.cancelled()

    def _work(self) -> None:
        last, last_s = 1, 0.0  # the size and the seconds of this thread's last batch
        while batch := self._next(last, last_s):
            start = time.monotonic()
            if batch[0].tokens > UNIT:
                self._continue(batch[0])
                continue
            self._score_batch(batch)
            last, last_s = len(batch), time.monotonic() - start
            with self._changed:
                self._busy -= len(batch)
                self._changed.notify_all()
                self._room = max(UNIT, int(SLICE * sum(entry.tokens for entry in batch) / max(last_s, 1e-3)))

    def _score_batch(self, batch: Sequence[_Entry]) -> None:
        try:
            self._finish(batch, self._score([entry.solution for entry in batch]))
        except Exception:  # one bad solution must not fail the rest: score each separately
            for entry in batch:
                try:
                    self._finish([entry], self._score([entry.solution]))
                except Exception as error:
                    entry.future.set_exception(error)

    def _continue(self, entry: _Entry) -> None:
        """Score the next part of a long solution, and then let other solutions have a turn."""
        has_more, failure = False, None
        try:
            has_more = self._score_part(entry)
        except Exception as error:
            failure = error
        if not has_more and entry.future.set_running_or_notify_cancel():
            if failure:
                entry.future.set_exception(failure)
            else:
                self._finish([entry], [entry.scores])
        with self._changed:
            self._has_long = False
            if has_more and self.is_closed:
                entry.future.cancel()
            elif has_more:
                entry.rank = -1  # before every other long solution
                heapq.heappush(self._long, entry)
            self._changed.notify_all()

    def _score_part(self, entry: _Entry) -> bool:
        """Score the next part; return whether there may be more."""
        if self._parts is None:
            (entry.scores,) = self._score([entry.solution])
            return False
        entry.parts = entry.parts or self._parts(entry.solution, SLICE)
        found = next(entry.parts, None)
        entry.scores += found or []
        return found is not None

    def _next(self, last: int, last_s: float) -> list[_Entry]:
        """The next batch without the solutions whose callers have gone; empty at the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._short or self._can_take_long() or self.is_closed)
                if last > 1 and not self._can_take_long():
                    self._changed.wait_for(lambda: self._has_gathered(last), _GATHERING * last_s)
                if self.is_closed:
                    return []
                if batch := self._take():
                    return batch

    def _can_take_long(self) -> bool:
        has_priority = self._since_long >= PATIENCE or not (self._short or self._busy)
        return bool(self._long) and not self._has_long and has_priority

    def _take(self) -> list[_Entry]:
        """Take a long solution, or short ones up to the limits of a batch; nothing if all were cancelled."""
        if self._can_take_long():
            entry = heapq.heappop(self._long)
            if entry.future.cancelled():
                return []
            self._rank, self._has_long, self._since_long = max(self._rank, entry.rank), True, 0
            return [entry]
        self._since_long += 1
        share = min(BATCH, math.ceil((len(self._short) + self._busy) / len(self._threads)))
        batch: list[_Entry] = []
        room = self._room
        while self._short and len(batch) < share and (not batch or self._short[0].tokens <= room):
            entry = heapq.heappop(self._short)
            if entry.future.set_running_or_notify_cancel():
                batch.append(entry)
                room -= entry.tokens
                self._rank = max(self._rank, entry.rank)
        self._busy += len(batch)
        return batch

    def _has_gathered(self, last: int) -> bool:
        return self.is_closed or self._can_take_long() or len(self._short) >= min(last, BATCH)

    def _finish(self, batch: Sequence[_Entry], scores: list[Scores]) -> None:
        with self._changed:
            self.batches += 1
            self.scored += len(batch)
        for entry, found in zip(batch, scores, strict=True):
            entry.future.set_result(found)
