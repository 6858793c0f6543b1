"""What a run shows: stage lines as they come, the summary, metrics as a table, and where the results are."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from rich.console import Console
from rich.table import Table
from rich.text import Text

_COLOURS = ("cyan", "magenta", "blue", "yellow", "green", "bright_cyan", "bright_magenta", "bright_blue")
_RESULTS = ("reports/report.html", "reports/report.md", "reports/tables.json", "metrics")
LOGS = Path(".pathfinder/logs")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a stage. ``seconds`` of wall clock; ``reason`` where it did not succeed."""

    name: str
    state: Literal["ran", "restored", "up to date", "failed", "not started"]
    seconds: float
    outs: tuple[str, ...]
    reason: str = ""

    def as_row(self) -> dict[str, Any]:
        """For a table artifact."""
        return {**asdict(self), "seconds": round(self.seconds, 1), "outs": ", ".join(self.outs)}


class Terminal:
    """Prints whole lines, so that stages side by side do not mix; their text is never taken as markup."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)

    def say(self, who: str, line: str, bad: bool = False) -> None:
        """One line with its speaker in front."""
        colour = "red" if bad else _COLOURS[zlib.crc32(who.encode()) % len(_COLOURS)]
        self._console.print(Text.assemble((f"[{who}] ", colour), (line, "red" if bad else "")))

    def summary(self, outcomes: list[Outcome]) -> None:
        """The table at the end of a run."""
        table = Table("stage", "state", "seconds", "where")
        table.columns[2].justify = "right"
        styles = {"failed": "red", "not started": "yellow", "ran": "green", "restored": "cyan"}
        for outcome in outcomes:
            seconds = f"{outcome.seconds:.1f}" if outcome.seconds else ""
            where = outcome.reason or ", ".join(outcome.outs)
            state = Text(outcome.state, styles.get(outcome.state, ""))
            table.add_row(Text(outcome.name), state, seconds, Text(where))
        self._console.print(table, soft_wrap=False)

    def where(self, root: Path) -> None:
        """The files to look at next."""
        found = [path for path in _RESULTS if (root / path).exists()]
        if found:
            self.say("pathfinder", f"results: {', '.join(found)}")


class StageLog:
    """A stage's whole output of its latest run, under ``.pathfinder/logs``."""

    def __init__(self, root: Path, stage: str) -> None:
        path = self.path(root, stage)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = path.open("w", encoding="utf-8", errors="backslashreplace")

    @staticmethod
    def path(root: Path, stage: str) -> Path:
        """Where the log of ``stage`` lies."""
        return root / LOGS / f"{stage}.log"

    def write(self, line: str) -> None:
        """One line, at once."""
        self._handle.write(f"{line}\n")
        self._handle.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.close()


def metrics_table(path: Path) -> str:
    """A metrics file as a Markdown table of its numbers under dotted names."""
    rows = []
    with contextlib.suppress(OSError, ValueError):
        rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in _leaves(json.loads(path.read_text()), "")]
    return "\n".join([f"**{path.name}**", "", "| metric | value |", "| --- | --- |", *rows])


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        yield name, json.dumps(value)
    else:
        yield name, f"{value:.6g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
