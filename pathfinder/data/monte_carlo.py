"""Read lines rated by Monte-Carlo roll-outs: RLHFlow-Mistral conversations and Math-Shepherd pairs.

Source: RLHFlow/Mistral-PRM-Data and peiyi9979/Math-Shepherd data formats; ``load_data_mistral.py`` and
``clean_mistral.py`` of the published code. "+" is rated 1 and "-" is rated -1. docs/data.md compares the presets.
"""

from __future__ import annotations

import re
from typing import Any

from pathfinder.core.params import Preset
from pathfinder.data.upstream import Rated, Reading, UnreadableError, Unused, step_problem, text_problem

RLHFLOW = "rlhflow_mistral"
SHEPHERD = "math_shepherd"
_MARK = "ки"  # Math-Shepherd's placeholder after every step
_RATINGS = {"+": 1, "-": -1}
_FIRST_STEP = re.compile(r"(.*?)(Step\s*1\s*:.*)", re.DOTALL | re.IGNORECASE)
_FIRST_STEP_OFFICIAL = re.compile(r"(.*?)Step 1:(.*)", re.DOTALL)
_CAPTION = re.compile(r"^[ \t]*Step\s*\d+\s*:[ \t]*", re.MULTILINE | re.IGNORECASE)


def read_monte_carlo(value: Any, preset: Preset) -> Reading:
    """Read one line of either format; raises ``UnreadableError`` if it has neither format."""
    if isinstance(value, dict) and "conversations" in value:
        return _read_conversation(value["conversations"], preset)
    if isinstance(value, dict) and {"input", "label"} <= value.keys():
        return _read_shepherd(value, preset)
    if isinstance(value, list):
        return _read_conversation(value, preset)
    raise UnreadableError("unknown_shape", "expected conversations, a list of turns, or input and label")


def _read_conversation(turns: Any, preset: Preset) -> Reading:
    """Read turns ``{content, role}``. Even turns are steps (the first follows the question), odd ones "+" or "-"."""
    if not isinstance(turns, list) or len(turns) < 2 or not all(isinstance(turn, dict) for turn in turns):
        raise UnreadableError("bad_conversation", "expected at least two turns, each an object")
    if preset == "repaired":
        roles = [turn.get("role") for turn in turns]
        if roles != ["user" if at % 2 == 0 else "assistant" for at in range(len(turns))]:
            raise UnreadableError("bad_roles", repr(roles[:4]))
    elif "role" not in turns[0]:
        raise UnreadableError("bad_roles", "the first turn has no role")
    texts = [turn.get("content") for turn in turns[::2]]
    marks = [turn.get("content") for turn in turns[1::2]]
    question, texts[0] = _split_question(texts[0], preset)
    reading = Reading(RLHFLOW, question)
    _follow(reading, texts, marks + [None] * (len(texts) - len(marks)), preset)
    return reading


def _read_shepherd(value: dict[str, Any], preset: Preset) -> Reading:
    """Read a pair of equal texts: ``input`` has a placeholder after every step where ``label`` has "+" or "-"."""
    marked, label = value["input"], value["label"]
    if not isinstance(marked, str) or not isinstance(label, str):
        raise UnreadableError("not_text", "input and label must be texts")
    texts, marks = _align(marked, label)
    question, texts[0] = _split_question(texts[0], preset)
    reading = Reading(SHEPHERD, question)
    _follow(reading, [text.strip() for text in texts], marks, preset)
    return reading


def clean_step(text: str, preset: Preset) -> str:
    """Remove the "Step N:" captions at the start of a line; the official preset does so later (``as_trained``)."""
    return text if preset == "official" else _CAPTION.sub("", text).strip()


def _split_question(first: Any, preset: Preset) -> tuple[str, str]:
    if reason := text_problem(first):
        raise UnreadableError(f"problem_{reason}", repr(first))
    match = (_FIRST_STEP_OFFICIAL if preset == "official" else _FIRST_STEP).match(first)
    if match is None:
        if preset == "official":
            return first, ""
        raise UnreadableError("no_first_step", first)
    question = match[1].strip()
    if not question:
        raise UnreadableError("problem_empty_text", first)
    step = match[2].strip()
    return question, f"Step 1:{step}" if preset == "official" else step  # as published, without a blank


def _follow(reading: Reading, texts: list[Any], marks: list[Any], preset: Preset) -> None:
    for position, (text, mark) in enumerate(zip(texts, marks, strict=True)):
        step = clean_step(text, preset) if isinstance(text, str) else text
        if reason := step_problem(step, preset):
            reading.refuse(position, 0, reason, repr(text))
            if preset == "official":
                continue
            # The prefix of later steps is unknown.
            later = range(position + 1, len(texts))
            reading.lost += [Unused(after, 0, "after_unreadable_step") for after in later]
            return
        rating = (1 if mark == "+" else -1) if preset == "official" else _RATINGS.get(str(mark).strip())
        if rating is None and mark is not None:
            reading.refuse(position, 0, "bad_rating", repr(mark))
        else:
            reading.records.append(Rated(position, 0, len(reading.trunk), step, None if mark is None else rating))
        reading.trunk.append(step)


def _align(marked: str, label: str) -> tuple[list[str], list[Any]]:
    """Steps and their ratings. A placeholder that the label repeats is part of the step."""
    texts, marks, text, at = [], list[Any](), "", 0
    for number, piece in enumerate(marked.split(_MARK)):
        if number:
            if label.startswith(_MARK, at):
                text, at = text + _MARK, at + len(_MARK)
            else:
                texts.append(text)
                marks.append(label[at : at + 1])
                text, at = "", at + 1
        if not label.startswith(piece, at):
            raise UnreadableError("label_mismatch", f"input and label differ from character {at} on")
        text, at = text + piece, at + len(piece)
    if at != len(label):
        raise UnreadableError("label_mismatch", f"the label is longer: text follows character {at}")
    if text.strip():
        texts.append(text)
        marks.append(None)
    if not texts:
        raise UnreadableError("no_first_step", marked)
    return texts, marks
