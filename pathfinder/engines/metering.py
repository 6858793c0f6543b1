"""The budget of a labelling run, its progress line and its counts.

A call is an answer in the journal; a refusal counts, but a failed try does not. The tokens of prompts and answers
count. Answers of earlier runs count as paid, so all runs of one labelling share a budget. Hours count per run.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ground.io import PathfinderError
from ground.progress import Progress
from pathfinder.core.params import Budget

Read = Callable[[str, Any], dict[str, bool]]
"""(journal key, entry) -> the shares to show and whether the answer counts: {"parsed": True}."""


class BudgetSpentError(PathfinderError, RuntimeError):
    """The budget allows no further call; all answers are kept.

    The exit status is ``EX_UNAVAILABLE`` of sysexits.h: a retry does not help, only a larger budget does.
    """

    exit_status = 69


@dataclass(slots=True)
class Meter:
    """Counts calls when they start and end; an engine asks it before each call.

    In ``limits``, 0 means unlimited. When the token limit is reached, calls in flight still finish.
    """

    limits: Budget
    read: Read = lambda _key, _entry: {}
    calls: int = 0
    tokens: int = 0
    stopped: str = ""  # the limit that stopped the run
    _started: float = field(default_factory=lambda: time.monotonic())
    _began: float = math.inf  # when the first call of this run started
    _in_flight: int = 0
    _fresh_tokens: int = 0
    _counted: set[int] = field(default_factory=set)  # hashes, because keys take much more memory
    _shares: Counter[tuple[str, bool]] = field(default_factory=Counter)
    _progress: Progress = field(init=False)  # of the present wave

    @contextmanager
    def wave(self, label: str, total: int) -> Iterator[None]:
        """Show the progress of ``total`` calls during the block.

        At its end, it raises ``BudgetSpentError`` if the budget stopped the run.
        """
        with Progress(label, total, "call") as self._progress:
            yield
            left = total - self._progress.done
        if self.stopped:
            cost = f", cost {self._cost(self.tokens):.2f}" if self.limits.price_per_million_tokens else ""
            raise BudgetSpentError(
                f"{label}: stopped by {self.stopped}. Paid so far: {self.calls:,} calls, {self.tokens:,} tokens{cost}. "
                f"Left: {left:,} of the {total:,} calls of this wave, and those that follow from them. All answers "
                "are kept: raise the budget and run the same command to resume"
            )

    def take(self, calls: int = 1) -> bool:
        """Reserve ``calls`` more calls; returns whether the budget allows them."""
        if self.stopped:
            return False
        limits, now = self.limits, time.monotonic()
        if self._began == math.inf:  # the start of a server counts towards the hours, but not towards the rates
            self._began = now
            self._progress.begin()
        if limits.max_calls and self.calls + self._in_flight + calls > limits.max_calls:
            self.stopped = f"max_calls {limits.max_calls:,}"
        elif limits.max_tokens_total and self.tokens >= limits.max_tokens_total:
            self.stopped = f"max_tokens_total {limits.max_tokens_total:,}"
        elif limits.max_hours and now - self._started >= limits.max_hours * 3600:
            self.stopped = f"max_hours {limits.max_hours:g}"
        else:
            self._in_flight += calls
        return not self.stopped

    def resumed(self, key: str, entry: Any) -> None:
        """Count an answer that was already in the journal, and show it in the progress of the wave."""
        self.count(key, entry)
        self._progress.resume(1)

    def answered(self, key: str, entry: Any) -> None:
        """Count the answer to a reserved call."""
        self._in_flight -= 1
        self._fresh_tokens += self.count(key, entry)
        self._progress.advance(1, self._note())

    def failed(self) -> None:
        """Count a reserved call that ended without an answer."""
        self._in_flight -= 1
        self._progress.advance()

    def count(self, key: str, entry: Any) -> int:
        """Count an answer, unless it was counted before; returns its tokens."""
        if (identity := hash(key)) in self._counted:
            return 0
        self._counted.add(identity)
        tokens = (entry.get("tokens") or 0) + (entry.get("prompt_tokens") or 0)  # null in old journals
        self.calls += 1
        self.tokens += tokens
        self._shares.update(self.read(key, entry).items())
        return tokens

    def _note(self) -> str:
        elapsed = max(time.monotonic() - self._began, 1e-9)
        notes = [f"{self._fresh_tokens / elapsed:.0f} tokens/s"]
        for name in dict.fromkeys(name for name, _ in self._shares):
            yes, no = self._shares[name, True], self._shares[name, False]
            notes.append(f"{name} {100 * yes / (yes + no):.1f} %")
        if self.limits.price_per_million_tokens:
            expected = self.tokens + self.tokens / self.calls * (self._progress.total - self._progress.done - 1)
            notes.append(f"cost {self._cost(self.tokens):.2f} of about {self._cost(expected):.2f}")
        return ", ".join(notes)

    def _cost(self, tokens: float) -> float:
        return tokens * self.limits.price_per_million_tokens / 1e6
