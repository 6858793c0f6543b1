"""Texts to steps, by each way and by the one that ``auto`` takes."""

from __future__ import annotations

import pytest

from ground.io import DataError
from pathfinder.core.layouts import split_known, split_steps

NUMBERED = "So.\n\n## Step 1: a\n\nb\n\n**Step 2:** c\nStep 4: d\n  Step 3. e"


@pytest.mark.parametrize(
    ("text", "way", "steps"),
    [
        (NUMBERED, "numbered", ["So.", "## Step 1: a\n\nb", "**Step 2:** c\nStep 4: d", "Step 3. e"]),
        ("a\r\n \t\r\nb\nc\n\n\n\n", "blank", ["a", "b\nc"]),
        ("\na\n b \r\nc", "lines", ["a", "b", "c"]),
        ("Step 1: a\nin Step 2: b", "lines", ["Step 1: a", "in Step 2: b"]),
        ("Step 2: a\n\nStep 1: b", "blank", ["Step 2: a", "Step 1: b"]),
        ("one", "lines", ["one"]),
        (" \n\n", "lines", []),
    ],
)
def test_auto_takes_numbers_then_blank_lines_then_lines(text: str, way: str, steps: list[str]) -> None:
    assert split_known(text) == (way, steps)
    assert split_steps(text) == split_steps(text, way) == steps  # type: ignore[arg-type]


def test_no_character_but_white_space_is_lost() -> None:
    for how in ("auto", "blank", "lines", "numbered"):
        assert "".join("".join(split_steps(NUMBERED, how)).split()) == "".join(NUMBERED.split())


def test_another_way_is_refused() -> None:
    with pytest.raises(DataError, match="unknown split 'words'; expected one of auto, blank, lines, numbered"):
        split_steps("a", "words")  # type: ignore[arg-type]
