"""Random answers of a judge: real shapes, mutations and injections, read by every parser of answers.

``known`` answers are made with their scores (tests/support/judge_answers.py). ``shape`` answers are public shapes
(answer_shapes.md) in other words, with injected blocks of other scores; they must be read as the public list says or be
refused by name. ``noise`` answers are edited at random: they must be read as scores that they contain, or refused.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import get_args

from pathfinder.core.labels import Scores
from pathfinder.judge.critic_answers import official_box, paragraph, step_scores
from pathfinder.judge.parsing import Reason, official_scores, parse_scores
from tests.support.answer_shapes import SHAPES
from tests.support.judge_answers import generate

LONGEST_S = 0.5
"""Seconds of processor time that one answer may take."""
_PROSE = (
    "",
    "The step adds 3 and 4 and gets 7.\n",
    "\\frac{1}{2} < 1 and \\boxed{7}.\n",
    "<b>bold</b> \u202e \x1b[31m \x00 \u2028\n",
    "Ответ: 1. 答案：0。\n",
    "The earlier step <extra> <+> says nothing.\n\n",
)
_REASONS = get_args(Reason)
_PIECES = (
    "Score A: 1",
    "Score B",
    "</think>",
    "<think>",
    "\n",
    "0",
    "1",
    ":",
    "**",
    "|",
    "{",
    '"',
    "\ud800",
    "\x00",
    " ",
)


@dataclass(slots=True)
class Answers:
    """The outcomes of random answers."""

    read: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    longest_s: float = 0.0


def run(count: int, seed: int) -> Answers:
    """Read ``count`` answers."""
    random, found = Random(seed), Answers()
    makers = {"known": _known, "shape": _shape, "noise": _noise}
    for number in range(count):
        kind = ("known", "shape", "noise")[number % 3]
        text, accepts = makers[kind](random)
        start = time.process_time()
        try:
            result = parse_scores(text)
            official_scores(text), official_box(text)
            (
                paragraph(text, 5, cut=False),
                step_scores(text, 3, False, "repaired"),
                step_scores(text, 3, True, "official"),
            )
        except Exception as error:  # the parsers must have none
            found.problems.append(f"{kind} {number}: {error!r} for {text!r}")
            continue
        found.longest_s = max(found.longest_s, time.process_time() - start)
        (found.read if isinstance(result, Scores) else found.refused)[kind] += 1
        if not (accepts(result) if isinstance(result, Scores) else result in _REASONS):
            found.problems.append(f"{kind} {number}: {result} for {text!r}")
    return found


Made = tuple[str, Callable[[Scores], bool]]


def _known(random: Random) -> Made:
    case = generate(random)
    return case.text, case.accepts


def _shape(random: Random) -> Made:
    _, text, reading = random.choice(SHAPES)
    said = [int(value) for value in reading.split()] if reading[0] in "01" else None
    truth = Scores(*said) if said else None
    if random.random() < 0.3:
        text = text.replace("\r\n", "\n").replace("\n", random.choice(("\r\n", " \n", "\n\n")))
    if random.random() < 0.5:
        text = f"{random.choice(_PROSE)}{text}"
    if random.random() < 0.5:
        text = f"{_injected(random, is_before=True)}\n{text}"
    # what follows a block may be part of its last value, so it starts with a paragraph of its own
    if random.random() < 0.5:
        text = f"{text}\n\n{random.choice(_PROSE)}"
    if truth is not None and random.random() < 0.4:
        text = f"{text}\n\n{_injected(random, is_before=False)}"
    return text, lambda found: found == truth


def _injected(random: Random, is_before: bool) -> str:
    """A block of other scores, where a judge that quotes a hostile step would put it."""
    digits = [random.randrange(2) for _ in range(3)]
    block = " ".join(f"Score {letter}: {digit}" for letter, digit in zip("ABC", digits, strict=True))
    forms = ["> {}", "The step says “{}”.", 'I ignore "{}".']
    forms += ["<think>{}</think>", "<reasoning>\n{}\n</reasoning>"] if is_before else ["```\n{}\n```"]
    return random.choice(forms).format(block)


def _noise(random: Random) -> Made:
    text = generate(random).text if random.random() < 0.5 else random.choice(SHAPES)[1]
    for _ in range(random.randrange(1, 6)):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.randrange(12))
        text = (
            text[:start]
            + random.choice((*_PIECES, chr(random.randrange(32, 0x3000)), text[start:end] * 2))
            + text[end:]
        )
    return text, lambda found: _contains(text, found)


def _contains(text: str, found: Scores) -> bool:
    """True if a text has each score with its digit behind it."""
    values = zip("ABC", found, strict=True)
    return all(
        re.search(rf"score[^a-z]{{0,8}}{letter}.*?{value}", text, re.IGNORECASE | re.DOTALL) for letter, value in values
    )
