"""Outside text on a terminal: nothing in it can move the cursor, hide or reorder what is shown."""

from __future__ import annotations

import pytest

from pathfinder.core.text import printable


@pytest.mark.parametrize("hidden", ["\x1b[31m", "\r", "\t", "\x00", "\u202e", "\u200b", "\u2028", "\ud800", "\x85"])
def test_hidden_characters_are_written_as_escapes(hidden: str) -> None:
    shown = printable(f"a{hidden}b")
    assert shown.isprintable()
    assert shown != f"a{hidden}b"


def test_visible_text_and_newlines_stay() -> None:
    text = "Ünïcode <+> 你好\n½ of\u00a0it"
    assert printable(text) == text
