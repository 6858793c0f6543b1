"""Scores for people: read solutions from JSON Lines, write scores as JSON or draw them for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from ground.io import DataError
from ground.text import printable
from pathfinder.core.given import first_character, open_given, rows_in, text_in
from pathfinder.core.steps import Solution, StepScore
from pathfinder.pages.picture import as_text, picture_of
from pathfinder.prm.results import TOO_LONG, scored_solution, split_steps

Form = Literal["processbench", "prmbench"]
"""Prediction files that can be written."""
PRINTED = 512
"""Solutions that are scored before their rows are printed, so that an interruption loses no more."""


_PROSE = (".md", ".tex")
"""How the name of a text ends that is never JSON, although it may begin with a bracket."""
_TEXTS = ("", ".txt", *_PROSE)


def batched(solutions: Sequence[Solution]) -> Iterator[Sequence[Solution]]:
    """The solutions in parts of ``PRINTED``."""
    return (solutions[start : start + PRINTED] for start in range(0, len(solutions), PRINTED))


def read_solutions(source: str) -> list[Solution]:
    """Read solutions from a file, or from standard input for ``-``, in any of these forms.

    JSON lines or one JSON list: ``{"problem", "steps": […]}``, ProcessBench's rows among them; PRMBench's rows, of
    which the modified solution is scored. Standard input, or a file with the name of a text, may also be one solution:
    blank lines separate the problem and the steps. A row without an id has its number, from 1. Raises ``DataError``
    naming the file and row of a bad row, a file without solutions, or one of another format.
    """
    suffix = Path(source.removesuffix(".gz")).suffix.lower()
    with open_given(source) as (name, handle):
        if first_character(handle) in (b"", b"{", b"[") and suffix not in _PROSE:
            solutions = [_solution(row, at) for at, row in rows_in(name, handle)]
        elif suffix not in _TEXTS:
            raise DataError(
                f"{name}: neither JSON (lines or a list) nor, by its name, a text; give a .jsonl, .json, .txt, .md or "
                ".tex file, or one without an extension"
            )
        else:
            problem, *steps = split_steps(text_in(name, handle))
            if not steps:
                raise DataError(f"{name}: only a problem; add its steps, with a blank line before each")
            solutions = [_solution({"id": 1, "problem": problem, "steps": steps}, name)]
    if not solutions:
        raise DataError(f"{name}: contains no solution; give JSON lines, or a text with blank lines between the steps")
    return solutions


def _solution(row: Any, place: str) -> Solution:
    found: tuple[Any, str, Any]
    match row:
        case {"idx": str() as idx, "classification": str() as kind, "modified_question": str() as problem}:
            found = (f"{kind}_{idx}", problem, row.get("modified_process"))
        case {"problem": str() as problem, "steps": steps}:
            found = (row.get("id", place.rpartition(" ")[2]), problem, steps)
        case _:
            found = (None, "", None)
    match found:
        case (str() | int() as name, problem, [_, *_] as steps) if not isinstance(name, bool) and str(name).strip():
            if all(isinstance(step, str) for step in steps):
                return Solution(str(name), problem, tuple(steps))
    raise DataError(
        f"{place}: expected an object with problem (string), steps (non-empty list of strings) and perhaps id (string "
        f"or integer), found {ascii(row)[:200]}; correct or remove the row"
    )


def prediction(form: Form, solution: Solution, scores: Sequence[StepScore]) -> dict[str, Any]:
    """The row of a prediction file that ``pathfinder grade`` reads, by the rule of the benchmark's stage.

    A step is incorrect if its reward is below one half or, in mode "pass1", if a label is negative. ProcessBench's
    subset is the part of the id before its last hyphen.
    """
    verdicts = [not step.has_error if math.isnan(step.reward) else step.reward >= 0.5 for step in scores]
    if form == "prmbench":
        labels = {"scores": {"step_level_validity_labels": verdicts}}
        return {"idx": solution.id, **labels} if scores else {"idx": solution.id, "scores": {}, "validity": False}
    found = next((place for place, is_correct in enumerate(verdicts) if not is_correct), -1)
    subset = solution.id.rpartition("-")[0]
    return {"subset": subset, "id": solution.id, "prediction": found if scores else None}


def score_row(solution: Solution, scores: Sequence[StepScore]) -> dict[str, Any]:
    """``{"id", "scored": true, "steps": […], "first_error"}`` or ``{"id", "scored": false, "reason"}``."""
    return {"id": solution.id, **scored_solution(solution, scores).row()}


def render_scores(solution: Solution, scores: Sequence[StepScore], has_colour: bool = False) -> str:
    """One problem for a terminal: the picture of its typed step scores.

    Control characters are shown as escapes, so that no text can control the terminal.
    """
    if not scores:
        return f"{printable(solution.problem)}\n\nnot scored: {TOO_LONG}"
    return as_text(picture_of(solution.problem, scored_solution(solution, scores).steps), has_colour)
