"""A record's trace as indented text that is safe to print on any terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pathfinder.core.text import printable

_TITLE, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def trace_text(trace: Mapping[str, Any], colour: bool) -> str:
    """Each part of the trace under its title. Texts of several lines are quoted behind a bar."""
    return "\n".join(_lines(trace, "", colour)) + "\n"


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
    """A value on the line of its head if it is short, else below it."""
    text = "none" if value is None or value in ({}, []) else str(value)
    if "\n" in text or (isinstance(value, (Mapping, list)) and value):
        yield f"{indent}{head}"
        yield from _lines(value, indent + step, colour)
    else:
        yield f"{indent}{head} {printable(text)}"
