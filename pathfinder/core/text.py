"""Text from outside, made safe to show on a terminal."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """``text`` with every control character and invisible character, except newlines, written as an escape."""
    return "".join(c if c == "\n" or not _is_hidden(c) else c.encode("unicode_escape").decode() for c in text)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character).startswith("C") or character in "\u2028\u2029"
