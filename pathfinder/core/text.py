"""Text on a terminal: text from outside made safe, errors without a traceback, and whether to use colour."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from pathfinder.core.io import PathfinderError


def printable(text: str) -> str:
    """``text`` with every control character and invisible character, except newlines, written as an escape."""
    return "".join(c if _is_visible(c) else c.encode("unicode_escape").decode() for c in text)


def has_colour(stream: TextIO) -> bool:
    """Whether to write colour codes to ``stream``: only to a terminal, and not if ``NO_COLOR`` is set."""
    return stream.isatty() and "NO_COLOR" not in os.environ


@contextmanager
def errors_without_traceback() -> Iterator[None]:
    """Print a ``PathfinderError`` of the block on standard error and raise ``SystemExit`` with its status instead."""
    try:
        yield
    except PathfinderError as error:
        message = f"error: {printable(str(error))}"
        print(f"\x1b[31m{message}\x1b[0m" if has_colour(sys.stderr) else message, file=sys.stderr)
        raise SystemExit(error.exit_status) from error


def _is_visible(character: str) -> bool:
    return character == "\n" or character.isprintable() or unicodedata.category(character) == "Zs"
