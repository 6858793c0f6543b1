"""Scores for people: rows of a JSON Lines file in, rows out; and one problem drawn for a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError, read_jsonl
from pathfinder.prm.scorers import PRM
from pathfinder.prm.scoring import Solution, StepScore
from pathfinder.tree.passes import Mode

STANDARD_INPUT = "-"
_GREEN, _RED, _DIM, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def read_solutions(source: str) -> list[Solution]:
    """Rows ``{"id", "problem", "steps": […]}`` of a file (``-``: standard input); errors name the file and line."""
    name = "standard input" if source == STANDARD_INPUT else source
    if source != STANDARD_INPUT and not Path(source).is_file():
        raise DataError(f"{source}: no such file; give a JSON Lines file or - for standard input")
    rows = _standard_input() if source == STANDARD_INPUT else read_jsonl(Path(source))
    return [_solution(row, f"{name}:{number}") for number, row in rows]


def mode_of(name: str) -> Mode:
    """The scorer's mode of that name; raises ``DataError`` listing them."""
    try:
        return Mode(name)
    except ValueError:
        raise DataError(f"unknown mode {name!r}; expected one of {', '.join(Mode)}") from None


def _standard_input() -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                raise DataError(
                    f"standard input:{number}: not valid JSON ({error}); mend or remove the line"
                ) from error


def _solution(row: Any, place: str) -> Solution:
    if not isinstance(row, dict):
        raise DataError(f"{place}: expected an object with id, problem and steps, found {type(row).__name__}")
    if not isinstance(row.get("id"), str | int) or isinstance(row.get("id"), bool):
        raise DataError(f"{place}: id is {row.get('id')!r}, expected a text or a whole number")
    if not isinstance(row.get("problem"), str):
        raise DataError(f"{place}: problem is {type(row.get('problem')).__name__}, expected a text")
    steps = row.get("steps")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) for step in steps):
        raise DataError(f"{place}: steps must be a list of texts with at least one in it")
    return Solution(str(row["id"]), row["problem"], tuple(steps))


def score_lines(
    scorer: PRM, solutions: list[Solution], on_done: Callable[[int], None] | None = None
) -> list[dict[str, Any]]:
    """One row a solution: ``{"id", "steps": [{"math", "consistency", "reward", "labels": {…}}]}``.

    Numbers are probabilities of ``<+>``; labels that the model's variant does not have are null or missing, and so is
    a reward that the scorer's mode does not ask for (null).
    """
    scored = scorer.score(solutions, on_done)
    return [
        {"id": solution.id, "steps": [_row(score) for score in scores]}
        for solution, scores in zip(solutions, scored, strict=True)
    ]


def _row(score: StepScore) -> dict[str, Any]:
    row: dict[str, Any] = {"math": score.math, "consistency": score.consistency, "reward": _reward(score)}
    if score.error_free is not None:
        row["error_free"] = score.error_free
    return {**row, "labels": score.labels}


def _reward(score: StepScore) -> float | None:
    return None if math.isnan(score.reward) else score.reward


def render_scores(solution: Solution, scores: list[StepScore], colour: bool = True) -> str:
    """One problem with the probabilities and typed errors of every step, for a terminal.

    Control characters of the texts are shown as escapes, so that no text can write to the terminal by itself.
    """
    lines = [_paint(_printable(solution.problem), _DIM, colour), ""]
    for number, (step, score) in enumerate(zip(solution.steps, scores, strict=True), start=1):
        wrong = [f"{name.replace('_', '-')} error" for name, fine in score.labels.items() if not fine]
        wrong = ["error" if name == "error-free error" else name for name in wrong]
        reward = _reward(score)
        fine = not wrong and (reward is None or reward >= 0.5)
        verdict = "ok" if fine else ", ".join(wrong) or "not a good step"
        stated = {"math": score.math, "consistency": score.consistency, "error-free": score.error_free}
        figures = [f"{name} {p:.2f}" for name, p in (*stated.items(), ("reward", reward)) if p is not None]
        lines.append(f"{number:3d}  {_printable(step)}")
        lines.append(f"     {_paint(verdict, _GREEN if fine else _RED, colour)}  ({', '.join(figures)})")
    return "\n".join(lines)


def _paint(text: str, code: str, colour: bool) -> str:
    return f"{code}{text}{_PLAIN}" if colour else text


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
