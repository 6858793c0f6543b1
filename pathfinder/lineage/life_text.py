"""A record's life for people: titles, lines and quoted texts, safe for any terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

_TITLE, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def printable(text: str) -> str:
    """``text`` with every character that a terminal could obey, or nobody can see, written out as an escape."""
    return "".join(
        c
        if c == "\n" or not (unicodedata.category(c).startswith("C") or c in "\u2028\u2029")
        else c.encode("unicode_escape").decode()
        for c in text
    )


def life_text(life: Mapping[str, Any], colour: bool) -> str:
    """Each part of the life under its title; texts of several lines are quoted behind a bar."""
    return "\n".join(_lines(life, "", colour)) + "\n"


def _lines(value: Any, indent: str, colour: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = printable(str(key))
            name = f"{_DIM if indent else _TITLE}{name}{_PLAIN}" if colour else name
            short = _short(inner)
            if short is not None:
                yield f"{indent}{name}: {short}"
            else:
                yield f"{indent}{name}:"
                yield from _lines(inner, indent + "  ", colour)
    elif isinstance(value, list):
        for number, inner in enumerate(value, start=1):
            short = _short(inner)
            if short is not None:
                yield f"{indent}{number}. {short}"
            else:
                yield f"{indent}{number}."
                yield from _lines(inner, indent + "   ", colour)
    else:
        yield from (f"{indent}| {line}" for line in printable(str(value)).split("\n"))


def _short(value: Any) -> str | None:
    """The value where it fits behind its name."""
    if value is None:
        return "none"
    if isinstance(value, (Mapping, list)):
        return None if value else "none"
    text = str(value)
    return None if "\n" in text else printable(text)
