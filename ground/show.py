"""The parts that all verbs share: their group, and the printing of results, as JSON or as terminal-safe text.

docs/commands.md lists the keys of each verb.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ground.text import errors_without_traceback, has_colour, printable

PIPELINE = "Pipeline (inside a clone)"
"""The panel of the verbs below in the help."""
PIPELINE_VERBS = {
    "run": "Run the pipeline of the active profile and print the results.",
    "plan": "Show which stages would run and why, or how much memory their models need.",
    "profile": "List the profiles, or write the params.yaml of one.",
    "pull": "Restore a published run from the remote, after its signed log was verified.",
    "team": "Show a team's server, machines, slots and queue, who computes a stage, and the age of unfinished work.",
}
"""Verbs of ``flows/cli.py``, which exists only in a clone of the project, and their help texts."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON (keys: docs/commands.md).")]
"""The option ``--json`` of every verb: annotate a parameter ``as_json`` with it."""
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print JSON Lines, as by default (keys: docs/commands.md).")]
"""The same for a verb that prints each row at once."""
_DIGEST, _SHORT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}"), 12  # a commit or a sha256
_TITLE, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def show(value: Any, as_json: bool, lines: Iterable[str] | None = None) -> None:
    """Print a JSON value on standard output: as JSON, or as ``lines`` if there are any, or else as indented text.

    JSON output does not read ``lines`` and shows a number that is not finite as null. Colours appear only on a
    terminal.
    """
    if as_json:
        text = json.dumps(_finite(value), indent=2, allow_nan=False) + "\n"
    elif lines is not None:
        text = "".join(f"{printable(line)}\n" for line in lines)
    else:
        text = as_text(value, has_colour(sys.stdout))
    sys.stdout.write(text)


def show_row(row: Any) -> None:
    """Print one row of JSON Lines on standard output, at once; a number that is not finite is null."""
    sys.stdout.write(json.dumps(_finite(row), allow_nan=False) + "\n")
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(value: Any, colour: bool = False) -> str:
    """Each part of a JSON value under its title. Multi-line texts have a bar before each line."""
    return "\n".join(_lines(value, "", colour)) + "\n"


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> Iterator[str]:
    """Rows as aligned lines below headings (``columns``, else the keys of the first row); digests are shortened."""
    if not rows:
        return
    names = list(columns or rows[0])
    right = [all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names]
    yield from aligned([names, *([_cell(row.get(name)) for name in names] for row in rows)], right)


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool] | None = None) -> Iterator[str]:
    """Rows of texts as lines with aligned columns; by default, all columns but the first are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    to_right = right or [place > 0 for place in range(len(widths))]
    for row in rows:
        cells = zip(row, widths, to_right, strict=True)
        yield "  ".join(cell.rjust(w) if is_right else cell.ljust(w) for cell, w, is_right in cells).rstrip()


def counted(number: int, noun: str) -> str:
    """A number and its noun, for example "1 record" or "2,000 records"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def offered(incomplete: str, known: Iterable[str]) -> list[str]:
    """The values that begin with ``incomplete``, each once."""
    return [value for value in dict.fromkeys(known) if value.startswith(incomplete)]


def _cell(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:,}" if isinstance(value, int) else "–" if value in (None, "") else str(value)
    return text[:_SHORT] if _DIGEST.fullmatch(text) else text


def _lines(value: Any, indent: str, colour: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = printable(str(key))
            name = f"{_DIM if indent else _TITLE}{name}{_PLAIN}" if colour else name
            yield from _entry(f"{name}:", inner, indent, "  ", colour)
    elif isinstance(value, list):
        for number, inner in enumerate(value, start=1):
            yield from _entry(f"{number}.", inner, indent, "   ", colour)
    else:
        yield from (f"{indent}| {line}" for line in printable(str(value)).split("\n"))


def _entry(head: str, value: Any, indent: str, step: str, colour: bool) -> Iterator[str]:
    """A short value on the line of its heading, else below it."""
    text = "none" if value is None or value in ({}, []) else str(value)
    if "\n" in text or (isinstance(value, (Mapping, list)) and value):
        yield f"{indent}{head}"
        yield from _lines(value, indent + step, colour)
    else:
        yield f"{indent}{head} {printable(text)}"


class _Example(TyperCommand):
    title = "Example"

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shown = copy(self)
        shown.epilog = f"{self.title}:\n\n{ctx.command_path} {self.epilog}".rstrip()
        TyperCommand.format_help(shown, ctx, formatter)


class _ExampleInClone(_Example):
    title = "Example, in a clone of the project"


def example(arguments: str = "", in_clone: bool = False) -> dict[str, Any]:
    """For ``@app.command(**example(arguments))``: the help of the verb ends with an example that has these arguments.

    With ``in_clone``, the help says that the example needs files of a clone.

    The help names the verb as the reader called it, for example ``pathfinder lineage up`` or ``python -m evidence up``.
    """
    return {"cls": _ExampleInClone if in_clone else _Example, "epilog": arguments}


class Verbs(TyperGroup):
    """Verbs whose errors are printed without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        with errors_without_traceback(), flushed():
            return super().invoke(ctx)


@contextmanager
def flushed() -> Iterator[None]:
    """Flush standard output at the end of the block, so that a failure is reported like any other error."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python fails again when it ends
            error.filename = "standard output"
            raise
