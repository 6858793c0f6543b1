"""The output of a run: lines of the stages, the summary, metrics as a table, and the paths of the results."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evidence.dvc.pipeline import leaves
from ground.text import printable
from pathfinder.pages.page import as_markdown_cell, as_markdown_text, markdown_table

_COLOURS = ("cyan", "magenta", "blue", "yellow", "green", "bright_cyan", "bright_magenta", "bright_blue")
_STATES = {"failed": "red", "not started": "yellow", "ran": "green", "restored": "cyan"}
_SLOWEST = 5
_RESULTS = ("reports/report.html", "reports/report.md", "reports/tables.json", "metrics")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a stage: wall-clock ``seconds``, and a ``reason`` if it failed or did not start."""

    name: str
    state: Literal["ran", "restored", "up to date", "failed", "not started"]
    seconds: float
    outs: tuple[str, ...]
    reason: str = ""

    @property
    def succeeded(self) -> bool:
        """True if the outputs exist and are current."""
        return self.state not in ("failed", "not started")

    def as_row(self) -> dict[str, Any]:
        """A row of the table artifact."""
        return {**asdict(self), "seconds": round(self.seconds, 1), "outs": ", ".join(self.outs)}


class Terminal:
    """Prints whole lines, so that the output of concurrent stages does not mix, and never interprets markup in them.

    On a terminal each stage in ``running`` has one live line with its clock and its last output, which stays when the
    stage ends: often it is a figure. A last line counts the stages and, if earlier runs took known times, says how long
    the rest will take. Elsewhere, and with ``is_verbose``, every line is printed.
    """

    is_verbose: ClassVar[bool] = False
    """Set by ``pathfinder run --verbose``."""
    uses_stderr: ClassVar[bool] = False
    """Set by ``pathfinder run --json``, whose standard output is one document: lines go to standard error."""
    outcomes: ClassVar[list[Outcome]] = []
    """The stages of the process's last run, in their order."""
    closing: ClassVar[list[str]] = []
    """Lines that the command prints after the results: the slowest stages of its run."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True, stderr=self.uses_stderr)
        self._running: dict[str, float] = {}  # when each stage started, in monotonic seconds
        self._said: dict[str, str] = {}  # the last line of each
        self.expect(())
        self._live: Live | None = None
        self._lock = threading.Lock()

    @property
    def is_live(self) -> bool:
        """True if running stages have live lines."""
        return self._console.is_terminal and not self.is_verbose

    def expect(self, names: Iterable[str], seconds: Mapping[str, float] = MappingProxyType({})) -> None:
        """Count the stages ``names`` from now on; ``seconds`` has the times of each in an earlier run, or nothing."""
        self._start, self._waiting, self._ended = time.monotonic(), set(names), set[str]()
        self._seconds = dict(seconds) if self._waiting <= seconds.keys() else {}

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Show a stage while the block runs, and its seconds when the block ends without an error."""
        if not self.is_live:
            yield
            return
        started = time.monotonic()
        with self._lock:
            self._running[name], self._said[name] = started, ""
            if self._live is None:
                self._live = Live(get_renderable=self._lines, console=self._console, transient=True)
                self._live.start()
        try:
            yield
            self._ended.add(name)
            line = self._said[name]
            self._console.print(_prefixed(name, f"{time.monotonic() - started:.1f} s{line and f': {line}'}"))
        finally:
            with self._lock:
                del self._running[name]
                if not self._running and self._live is not None:
                    self._live.stop()
                    self._live = None

    def print(self, source: str, line: str, bad: bool = False) -> None:
        """Print one line after the name of its source; a running stage with a live line keeps only bad ones."""
        if source in self._running and not bad:
            self._said[source] = printable(line)
        else:
            self._console.print(_prefixed(source, line, bad))

    def summary(self, outcomes: Iterable[Outcome]) -> None:
        """Print the table at the end of a run: with live lines only the stages that did not succeed."""
        found = type(self).outcomes = list(outcomes)
        slow = sorted((one for one in found if one.seconds), key=lambda one: -one.seconds)[:_SLOWEST]
        parts = ", ".join(f"{one.name} {one.seconds:.0f} s" for one in slow)
        type(self).closing = [f"slowest stages: {parts}"] if self.is_live and parts else []
        if not (shown := [one for one in found if not (self.is_live and one.succeeded)]):
            return
        table = Table("stage", "state", "seconds", "outputs or reason")
        table.columns[2].justify = "right"
        for outcome in shown:
            seconds = f"{outcome.seconds:.1f}" if outcome.seconds else ""
            state = Text(outcome.state, _STATES.get(outcome.state, ""))
            table.add_row(Text(outcome.name), state, seconds, Text(outcome.reason or ", ".join(outcome.outs)))
        self._console.print(table, soft_wrap=False)

    def _lines(self) -> Table:
        """One line per running stage, then how many have ended and the time since the beginning."""
        now = time.monotonic()
        table = Table.grid(padding=(0, 1), expand=True)
        for width in (None, None, 1):
            table.add_column(no_wrap=True, overflow="ellipsis", ratio=width)
        for name, start in list(self._running.items()):
            table.add_row(Text(name, _colour(name)), _clock(now - start), Text(self._said[name]))
        stages = f"{len(self._ended)} of {len(self._waiting)} stages"
        rest = f", about {_clock(left)} left" if (left := self._left_s(now)) >= 1 else ""
        table.add_row(Text("total"), _clock(now - self._start), Text(stages + rest))
        return table

    def _left_s(self, now: float) -> float:
        """The seconds to the end, at this run's pace compared with earlier runs; 0 before a twentieth is done."""
        done = sum(self._seconds.get(name, 0.0) for name in self._ended) + sum(
            min(now - start, self._seconds.get(name, 0.0)) for name, start in list(self._running.items())
        )
        whole = sum(self._seconds[name] for name in self._waiting & self._seconds.keys())
        return (now - self._start) * (whole - done) / done if done > whole / 20 else 0.0

    def where(self, root: Path) -> None:
        """Print the paths of the results."""
        if found := [path for path in _RESULTS if (root / path).exists()]:
            self.print("pathfinder", f"results: {', '.join(found)}")


def flow_output(source: str) -> Callable[[str], None]:
    """A function that prints lines after the name of their source, and logs them for the present flow run."""
    from prefect import get_run_logger

    terminal, logger = Terminal(), get_run_logger()

    def say(line: str) -> None:
        terminal.print(source, line)
        logger.info("%s", line)

    return say


def _prefixed(source: str, line: str, bad: bool = False) -> Text:
    return Text.assemble((f"[{source}] ", "red" if bad else _colour(source)), (line, "red" if bad else ""))


def _colour(source: str) -> str:
    return _COLOURS[zlib.crc32(source.encode()) % len(_COLOURS)]


def _clock(seconds: float) -> str:
    """Minutes and seconds, as 3:07."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def log_path(stage: str) -> Path:
    """The log of a stage, relative to the project."""
    return Path(".pathfinder/logs", f"{stage}.log")


@contextlib.contextmanager
def stage_log(root: Path, stage: str) -> Iterator[Callable[[str], None]]:
    """Start the log of a stage's latest run; yields a function that writes one line immediately."""
    path = root / log_path(stage)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="backslashreplace", buffering=1) as handle:
        yield lambda line: print(line, file=handle)


def metrics_table(path: Path) -> str:
    """A metrics file as a Markdown table, with dotted names for nested values."""
    rows = []
    with contextlib.suppress(OSError, ValueError):
        for name, value in leaves(json.loads(path.read_text())):
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            rows.append([as_markdown_cell(name), as_markdown_cell(text)])
    return f"**{as_markdown_text(path.name)}**\n\n{markdown_table(('metric', 'value'), rows)}"
