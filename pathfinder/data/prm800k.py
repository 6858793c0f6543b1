"""Read PRM800K lines (phase 1 and 2).

Source: openai/prm800k data format; ``load_data.py`` of the published code. docs/data.md compares the presets.
"""

from __future__ import annotations

from typing import Any

from pathfinder.core.params import Preset
from pathfinder.data.upstream import Rated, Reading, UnreadableError, Unused, step_problem, text_problem

SOURCE = "prm800k"
_RATINGS = (-1, 0, 1)
_FINISHES = ("solution", "found_error", "give_up", "bad_problem")  # defined by the format; the rest count as unknown


def read_prm800k(value: Any, preset: Preset) -> Reading:
    """Read one line. Every completion is a record after the steps that were chosen before it.

    Flags, finish reasons, human and unchosen steps are counted in ``notes`` and change nothing. Raises
    ``UnreadableError`` if the line has a different shape.
    """
    problem, steps = _frame(value)
    reading = Reading(SOURCE, problem)
    notes = reading.notes
    if value.get("labeler") is not None:
        reading.rater = str(value["labeler"]).encode("utf-8", "backslashreplace").decode()
    for flag in ("quality_control", "initial_screening"):
        notes[flag] += bool(value.get(f"is_{flag}_question"))
    finish = value["label"].get("finish_reason")
    notes[f"finish_{finish}" if finish in _FINISHES else "finish_unknown"] += 1
    ended = False
    for position, step in enumerate(steps):
        completions = _completions(step, position)
        notes["flagged"] += sum(isinstance(c, dict) and c.get("flagged") is True for c in completions)
        notes["human_completions"] += step.get("human_completion") is not None
        notes["unchosen_steps"] += step.get("chosen_completion") is None
        if ended:
            reading.lost += [Unused(position, index, "after_unchosen_step") for index in range(len(completions))]
            continue
        for index, completion in enumerate(completions):
            _add_record(reading, preset, position, index, completion)
        text = _followed(step, completions, preset, position)
        if text is not None:
            reading.trunk.append(text)
        else:
            ended = preset == "repaired"  # the prefix of later steps is unknown
            note = "ended_by_unchosen_step" if ended else "skipped_unchosen_step"
            notes[note] += position + 1 < len(steps)
    return reading


def _frame(value: Any) -> tuple[str, list[Any]]:
    if not isinstance(value, dict):
        raise UnreadableError("not_an_object", type(value).__name__)
    question, label = value.get("question"), value.get("label")
    if not isinstance(question, dict) or not isinstance(label, dict):
        raise UnreadableError("missing_field", "expected question.problem and label.steps")
    problem, steps = question.get("problem"), label.get("steps")
    if reason := text_problem(problem):
        raise UnreadableError(f"problem_{reason}", repr(problem))
    if not isinstance(steps, list):
        raise UnreadableError("missing_field", f"label.steps is {type(steps).__name__}, expected a list")
    return str(problem), steps


def _completions(step: Any, position: int) -> list[Any]:
    if not isinstance(step, dict):
        raise UnreadableError("bad_step", f"step {position} is {type(step).__name__}, expected an object")
    completions = step.get("completions")
    if not isinstance(completions, list | None):
        raise UnreadableError("bad_step", f"step {position}: completions is {type(completions).__name__}")
    return completions or []


def _add_record(reading: Reading, preset: Preset, position: int, index: int, completion: Any) -> None:
    if not isinstance(completion, dict):
        reading.refuse(position, index, "not_an_object", type(completion).__name__)
        return
    text: Any = completion.get("text", "" if preset == "official" else None)
    rating = completion.get("rating")
    if reason := step_problem(text, preset):
        reading.refuse(position, index, reason, repr(text))
    elif rating is not None and (isinstance(rating, bool) or rating not in _RATINGS):
        reading.refuse(position, index, "bad_rating", repr(rating))
    else:
        given = None if rating is None else int(rating)
        reading.records.append(Rated(position, index, len(reading.trunk), text, given))


def _followed(step: dict[str, Any], completions: list[Any], preset: Preset, position: int) -> str | None:
    """The text that the next step continues: the chosen completion, else the human completion, else ``None``."""
    chosen = step.get("chosen_completion")
    if chosen is not None and (isinstance(chosen, bool) or not isinstance(chosen, int)):
        raise UnreadableError("bad_choice", f"step {position}: chosen_completion is {chosen!r}, expected an integer")
    followed = step.get("human_completion")
    if chosen is not None and 0 <= chosen < len(completions):
        followed = completions[chosen]
    if not isinstance(followed, dict):
        return None
    text = followed.get("text", "" if preset == "official" else None)
    return None if step_problem(text, preset) else str(text)
