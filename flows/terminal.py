"""The output of a run: lines of the stages, the summary, metrics as a table, and the paths of the results."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pathfinder.pages.page import markdown_table

_COLOURS = ("cyan", "magenta", "blue", "yellow", "green", "bright_cyan", "bright_magenta", "bright_blue")
_STATES = {"failed": "red", "not started": "yellow", "ran": "green", "restored": "cyan"}
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
        """Whether the outputs exist and are current."""
        return self.state not in ("failed", "not started")

    def as_row(self) -> dict[str, Any]:
        """A row of the table artifact."""
        return {**asdict(self), "seconds": round(self.seconds, 1), "outs": ", ".join(self.outs)}


class Terminal:
    """Prints whole lines, so that the output of concurrent stages does not mix, and never interprets markup in them."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)

    def print(self, source: str, line: str, bad: bool = False) -> None:
        """Print one line after the name of its source."""
        colour = "red" if bad else _COLOURS[zlib.crc32(source.encode()) % len(_COLOURS)]
        self._console.print(Text.assemble((f"[{source}] ", colour), (line, "red" if bad else "")))

    def summary(self, outcomes: Iterable[Outcome]) -> None:
        """Print the table at the end of a run."""
        table = Table("stage", "state", "seconds", "outputs or reason")
        table.columns[2].justify = "right"
        for outcome in outcomes:
            seconds = f"{outcome.seconds:.1f}" if outcome.seconds else ""
            state = Text(outcome.state, _STATES.get(outcome.state, ""))
            table.add_row(Text(outcome.name), state, seconds, Text(outcome.reason or ", ".join(outcome.outs)))
        self._console.print(table, soft_wrap=False)

    def where(self, root: Path) -> None:
        """Print the paths of the results."""
        if found := [path for path in _RESULTS if (root / path).exists()]:
            self.print("pathfinder", f"results: {', '.join(found)}")


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
            rows.append([cell.replace("|", "\\|").replace("\n", " ") for cell in (name, text)])
    return f"**{path.name}**\n\n{markdown_table(('metric', 'value'), rows)}"


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested mappings with their dotted names; a list is one value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value
