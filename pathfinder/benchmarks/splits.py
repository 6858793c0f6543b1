"""Texts of whole solutions become steps."""

from __future__ import annotations

import re
from typing import Literal, get_args

from ground.io import DataError
from pathfinder.core.prompts import STEP_SEPARATOR

Split = Literal["auto", "blank", "lines", "numbered"]
"""Where a step begins: after a blank line, at every line, or at a line that begins with its number ("Step 2:").

``auto`` takes numbers if a text has at least steps 1 and 2, else blank lines if it has one, else lines.
"""
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n")
_LINES = re.compile(r"\n")
_NUMBER = re.compile(r"^[^\S\n]*(?:#{1,6} |\*\*)?Step (\d{1,4})\b\**[:.]", re.MULTILINE)
SAID = {"blank": "at blank lines", "lines": "at line ends", "numbered": 'at "Step 1:", "Step 2:" …'}
"""How a message names each way."""


def split_steps(text: str, how: Split = "auto") -> list[str]:
    """The steps of a solution: its text without white space around each step, and without empty steps.

    Windows line ends become Unix line ends. Nothing else of the text is lost: numbers stay, and the text before
    "Step 1:" is a step. Raises ``DataError`` for an unknown ``how``.
    """
    return split_known(text, how)[1]


def split_known(text: str, how: Split = "auto") -> tuple[str, list[str]]:
    """The way that ``auto`` takes (any other ``how`` is itself), and the steps as ``split_steps`` returns them.

    Raises ``DataError`` for an unknown ``how``.
    """
    if how not in get_args(Split):
        raise DataError(f"unknown split {how!r}; expected one of {', '.join(get_args(Split))}")
    text = text.replace("\r\n", "\n").strip()
    taken: str = how
    if how == "auto":
        taken = "numbered" if len(_numbered(text)) > 2 else "blank" if _BLANK_LINES.search(text) else "lines"
    parts = _parts(text) if taken == "numbered" else (_BLANK_LINES if taken == "blank" else _LINES).split(text)
    return taken, [step for part in parts if (step := part.strip())]


def _numbered(text: str) -> list[int]:
    """Where the parts of a text begin: at its start, and at "Step 1:", "Step 2:" and so on, without a gap."""
    starts = [0]
    for found in _NUMBER.finditer(text):
        if int(found[1]) == len(starts):
            starts.append(found.start())
    return starts


def _parts(text: str) -> list[str]:
    starts = _numbered(text)
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def steps_of(solution: str) -> tuple[str, ...]:
    """Split a whole solution at blank lines into non-empty steps, as the search would have drawn them."""
    return tuple(step for part in solution.split(STEP_SEPARATOR) if (step := part.strip()))
