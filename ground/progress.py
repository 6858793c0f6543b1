"""Progress of long work: a bar with the time left on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

_QUIET_S = 2.0
_EVERY_S = 10.0


class Progress:
    """Counts towards ``total`` on standard error.

    A terminal shows a live bar. A log gets a line at most every ten seconds, and a last line if the work took more than
    two seconds.
    """

    def __init__(self, label: str, total: int, unit: str = "it") -> None:
        self.label, self.total, self.unit, self.done = label, total, unit, 0
        self._start = time.monotonic()
        self._printed_at, self._printed = self._start, -1
        self._resumed = 0
        self._note = ""
        self._bar = _bar(total, label, unit) if sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._printed != self.done and time.monotonic() - self._start > _QUIET_S:
            self._print()

    def begin(self) -> None:
        """Start measuring the rate now, after preparation such as the start of a server."""
        self._start = time.monotonic()
        if self._bar is not None:
            self._bar.unpause()

    def resume(self, done: int) -> None:
        """Count ``done`` items that an earlier run finished, without including them in the rate."""
        self._resumed += done
        self.done += done
        if self._bar is not None:
            self._bar.initial += done
            self._bar.update(done)

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count ``count`` more items; ``note`` is shown after the figures."""
        self.done += count
        self._note = note or self._note
        if self._bar is not None:
            self._bar.set_postfix_str(self._note, refresh=False)
            self._bar.update(count)
        elif time.monotonic() - self._printed_at >= _EVERY_S:
            self._print()

    def _print(self) -> None:
        self._printed_at, self._printed = time.monotonic(), self.done
        elapsed = self._printed_at - self._start
        rate = (self.done - self._resumed) / elapsed if elapsed > 0 else 0.0
        left = f"{duration((self.total - self.done) / rate)} left" if rate > 0 else "time left unknown"
        share = 100 * self.done / self.total if self.total else 100.0
        note = f"; {self._note}" if self._note else ""
        text = f"{self.label}: {self.done}/{self.total} {self.unit} ({share:.0f} %), {rate:.1f}/s, {left}{note}"
        print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A rounded time in the unit that a reader expects: "90 s", "15 min" or "16.5 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _bar(total: int, label: str, unit: str) -> Any:
    from tqdm import tqdm  # only for a terminal

    return tqdm(total=total, desc=label, unit=unit, dynamic_ncols=True, delay=_QUIET_S)
