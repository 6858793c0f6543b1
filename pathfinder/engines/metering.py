"""What a labelling run pays and sees: its budget, its live line and its figures.

A call is an answer that the journal holds (a refusal counts, a try that failed does not); tokens are those of prompt
and answer. Answers of an earlier run count as paid, so that a budget holds over all runs of one labelling together;
hours are those of this run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pathfinder.core.io import PathfinderError
from pathfinder.core.progress import Progress

Read = Callable[[str, Any], tuple[bool | None, bool | None]]
"""(journal key, entry) -> whether it could be read (``None``: no text), whether its scores agree with the rating."""


class BudgetSpentError(PathfinderError, RuntimeError):
    """The budget allows no further call; everything answered is kept.

    The exit status is ``EX_UNAVAILABLE`` of sysexits.h: no retry helps, a larger budget does.
    """

    exit_status = 69


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a labelling run; 0 is none. A token limit is met when it is reached: calls under way still end."""

    max_calls: int = 0
    max_tokens: int = 0
    max_hours: float = 0.0
    price_per_million_tokens: float = 0.0


@dataclass(slots=True)
class Meter:
    """Counts calls as they start and end; engines ask it before each."""

    budget: Budget = field(default_factory=Budget)
    read: Read = lambda _key, _said: (None, None)
    calls: int = 0
    tokens: int = 0
    stopped: str = ""  # the limit that stopped the run
    _started: float = field(default_factory=lambda: time.monotonic())
    _began: float = field(default_factory=lambda: time.monotonic())
    _in_flight: int = 0
    _fresh_tokens: int = 0
    _texts: int = 0
    _parsed: int = 0
    _judged: int = 0
    _agreed: int = 0
    _progress: Progress | None = None

    @contextmanager
    def wave(self, label: str, total: int) -> Iterator[None]:
        """Show the progress of ``total`` calls while the block runs; a stop by the budget is raised at its end."""
        with Progress(label, total, "call") as self._progress:
            yield
            done = self._progress.done
        if self.stopped:
            raise BudgetSpentError(
                f"{label}: stopped by {self.stopped}. Paid so far: {self.calls:,} calls, {self.tokens:,} tokens"
                f"{self._cost(self.tokens)}. Left: {total - done:,} of the {total:,} calls of this wave, and what "
                "they entail. Every answer is kept: the same command with a larger budget goes on from here"
            )

    def begin(self) -> None:
        """Calls start now: a server that had to be started first does not enter the rates (but the hours)."""
        if not self._fresh_tokens:
            self._began = time.monotonic()
        if self._progress is not None:
            self._progress.begin()

    def take(self, calls: int = 1) -> bool:
        """Whether ``calls`` more may start; they then count as under way."""
        if self.stopped:
            return False
        limits = self.budget
        hours = (time.monotonic() - self._started) / 3600
        if limits.max_calls and self.calls + self._in_flight + calls > limits.max_calls:
            self.stopped = f"max_calls {limits.max_calls:,}"
        elif limits.max_tokens and self.tokens >= limits.max_tokens:
            self.stopped = f"max_tokens_total {limits.max_tokens:,}"
        elif limits.max_hours and hours >= limits.max_hours:
            self.stopped = f"max_hours {limits.max_hours:g}"
        else:
            self._in_flight += calls
            return True
        return False

    def resumed(self, key: str, said: Any) -> None:
        """Count an answer that the journal already holds."""
        self._count(key, said)
        if self._progress is not None:
            self._progress.resume(1)

    def answered(self, key: str, said: Any) -> None:
        """Count an answer to a call that was taken."""
        self._in_flight -= 1
        self._fresh_tokens += self._count(key, said)
        if self._progress is not None:
            self._progress.advance(1, self._note(self._progress))

    def failed(self) -> None:
        """A call that was taken ended without an answer."""
        self._in_flight -= 1
        if self._progress is not None:
            self._progress.advance()

    def _count(self, key: str, said: Any) -> int:
        tokens = int(said.get("tokens", 0)) + int(said.get("prompt_tokens", 0))
        self.calls += 1
        self.tokens += tokens
        parsed, agrees = self.read(key, said)
        if parsed is not None:
            self._texts += 1
            self._parsed += parsed
        if agrees is not None:
            self._judged += 1
            self._agreed += agrees
        return tokens

    def _note(self, progress: Progress) -> str:
        elapsed = max(time.monotonic() - self._began, 1e-9)
        notes = [f"{self._fresh_tokens / elapsed:.0f} tokens/s"]
        if self._texts:
            notes.append(f"parsed {100 * self._parsed / self._texts:.1f} %")
        if self._judged:
            notes.append(f"agrees {100 * self._agreed / self._judged:.1f} %")
        ahead = self.tokens + self.tokens / self.calls * (progress.total - progress.done - 1)
        if self.budget.price_per_million_tokens:
            notes.append(f"cost {self._money(self.tokens):.2f} of about {self._money(ahead):.2f}")
        return ", ".join(notes)

    def _money(self, tokens: float) -> float:
        return tokens * self.budget.price_per_million_tokens / 1e6

    def _cost(self, tokens: float) -> str:
        return f", cost {self._money(tokens):.2f}" if self.budget.price_per_million_tokens else ""
