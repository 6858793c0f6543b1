"""Read PRM800K lines (phase 1 and 2).

Source: openai/prm800k data format; ``load_data.py`` of the published code. docs/data.md compares the presets.
"""

from __future__ import annotations

from typing import Any

from pathfinder.data.upstream import ConversionPreset, Rated, Reading, UnreadableError, text_problem

SOURCE = "prm800k"
_RATINGS = (-1, 0, 1)
_FINISHES = ("solution", "found_error", "give_up", "bad_problem")  # defined by the format; others count as unknown


def read_prm800k(value: Any, preset: ConversionPreset) -> Reading:
    """Read one line. Every completion is a record after the steps that were chosen before it.

    Flags, finish reasons, human and unchosen steps are counted in ``notes`` and change nothing. Raises
    ``UnreadableError`` if the line has another shape.
    """
    problem, steps = _frame(value)
    reading = Reading(SOURCE, problem)
    for flag in ("is_quality_control_question", "is_initial_screening_question"):
        if value.get(flag):
            reading.notes[flag.removeprefix("is_").removesuffix("_question")] += 1
    finish = value["label"].get("finish_reason")
    reading.notes[f"finish_{finish}" if finish in _FINISHES else "finish_unknown"] += 1
    ended = False
    flagged = human = unchosen = 0
    for position, step in enumerate(steps):
        completions = _completions(step, position)
        for completion in completions:
            flagged += isinstance(completion, dict) and completion.get("flagged") is True
        human += step.get("human_completion") is not None
        unchosen += step.get("chosen_completion") is None
        if ended:
            reading.dropped["after_unchosen_step"] += len(completions)
            continue
        for index, completion in enumerate(completions):
            _add_record(reading, preset, position, index, completion)
        text = _followed(step, completions, preset, position)
        if text is not None:
            reading.trunk.append(text)
        elif preset == "repaired":
            # The prefix of later steps is unknown.
            ended = True
            reading.notes["ended_by_unchosen_step"] += position + 1 < len(steps)
        elif position + 1 < len(steps):
            reading.notes["skipped_unchosen_step"] += 1
    reading.notes.update(flagged=flagged, human_completions=human, unchosen_steps=unchosen)
    return reading


def _frame(value: Any) -> tuple[str, list[Any]]:
    if not isinstance(value, dict):
        raise UnreadableError("not_an_object", type(value).__name__)
    question, label = value.get("question"), value.get("label")
    if not isinstance(question, dict) or not isinstance(label, dict):
        raise UnreadableError("missing_field", "expected question.problem and label.steps")
    problem: Any = question.get("problem")
    steps = label.get("steps")
    reason = text_problem(problem)
    if reason is not None:
        raise UnreadableError(f"problem_{reason}", repr(problem))
    if not isinstance(steps, list):
        raise UnreadableError("missing_field", f"label.steps is {type(steps).__name__}, expected a list")
    return problem, steps


def _completions(step: Any, position: int) -> list[Any]:
    if not isinstance(step, dict):
        raise UnreadableError("bad_step", f"step {position} is {type(step).__name__}, expected an object")
    completions = step.get("completions")
    if completions is None:
        return []
    if not isinstance(completions, list):
        raise UnreadableError("bad_step", f"step {position}: completions is {type(completions).__name__}")
    return completions


def _add_record(reading: Reading, preset: ConversionPreset, position: int, index: int, completion: Any) -> None:
    if not isinstance(completion, dict):
        reading.refuse(position, index, "not_an_object", type(completion).__name__)
        return
    text: Any = completion.get("text")
    rating = completion.get("rating")
    if preset == "official" and "text" not in completion:
        text = ""
    reason = text_problem(text)
    if reason is not None and not (preset == "official" and reason == "empty_text"):
        reading.refuse(position, index, reason, repr(text))
    elif rating is not None and (isinstance(rating, bool) or rating not in _RATINGS):
        reading.refuse(position, index, "bad_rating", repr(rating))
    else:
        given = None if rating is None else int(rating)
        reading.records.append(Rated(position, index, len(reading.trunk), text, given))


def _followed(step: dict[str, Any], completions: list[Any], preset: ConversionPreset, position: int) -> str | None:
    """The text that the next step continues: the chosen completion, else the human one, else ``None``."""
    chosen, human = step.get("chosen_completion"), step.get("human_completion")
    if chosen is not None and (isinstance(chosen, bool) or not isinstance(chosen, int)):
        raise UnreadableError("bad_choice", f"step {position}: chosen_completion is {chosen!r}, expected an integer")
    followed = completions[chosen] if chosen is not None and 0 <= chosen < len(completions) else human
    if not isinstance(followed, dict):
        return None
    text = followed.get("text", "" if preset == "official" else None)
    reason = text_problem(text)
    if reason is None or (preset == "official" and reason == "empty_text"):
        return str(text)
    return None
