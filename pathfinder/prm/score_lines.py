"""Scores for people: read solutions from JSON Lines, return rows of scores or draw them for a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError, read_jsonl
from pathfinder.prm.steps import PRM, Solution, StepScore

STANDARD_INPUT = "-"
_GREEN, _RED, _DIM, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def read_solutions(source: str) -> list[Solution]:
    """Read rows ``{"id", "problem", "steps": […]}`` from a file, or from standard input for ``-``.

    Raises ``DataError`` naming the file and line of a bad row.
    """
    if source == STANDARD_INPUT:
        return [_solution(row, f"standard input:{number}") for number, row in _standard_input()]
    if not Path(source).is_file():
        raise DataError(f"{source}: no such file; give a JSON Lines file or - for standard input")
    return [_solution(row, f"{source}:{number}") for number, row in read_jsonl(Path(source))]


def _standard_input() -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                raise DataError(f"standard input:{number}: not valid JSON ({error}); fix or remove the line") from error


def _solution(row: Any, place: str) -> Solution:
    if not isinstance(row, dict):
        raise DataError(f"{place}: expected an object with id, problem and steps, found {type(row).__name__}")
    if not isinstance(row.get("id"), str | int) or isinstance(row.get("id"), bool):
        raise DataError(f"{place}: id is {row.get('id')!r}, expected a string or an integer")
    if not isinstance(row.get("problem"), str):
        raise DataError(f"{place}: problem is {type(row.get('problem')).__name__}, expected a string")
    steps = row.get("steps")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) for step in steps):
        raise DataError(f"{place}: steps must be a non-empty list of strings")
    return Solution(str(row["id"]), row["problem"], tuple(steps))


def score_lines(
    scorer: PRM, solutions: list[Solution], on_done: Callable[[int], None] | None = None
) -> list[dict[str, Any]]:
    """One row per solution: ``{"id", "steps": [{"math", "consistency", "reward", "labels": {…}}]}``.

    Numbers are probabilities of ``<+>``. A label that the model does not have is null or missing; the reward is null if
    the mode does not ask for it.
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
    """One problem for a terminal, with the probabilities and typed errors of every step.

    Control characters are shown as escapes, so that no text can control the terminal.
    """
    lines = [_paint(_printable(solution.problem), _DIM, colour), ""]
    for number, (step, score) in enumerate(zip(solution.steps, scores, strict=True), start=1):
        wrong = [name for name, positive in score.labels.items() if not positive]
        errors = ["error" if name == "error_free" else f"{name} error" for name in wrong]
        reward = _reward(score)
        fine = not errors and (reward is None or reward >= 0.5)
        verdict = "ok" if fine else ", ".join(errors) or "low reward (no typed error)"
        stated = {"math": score.math, "consistency": score.consistency, "error-free": score.error_free}
        figures = [f"{name} {p:.2f}" for name, p in (*stated.items(), ("reward", reward)) if p is not None]
        lines.append(f"{number:3d}  {_printable(step)}")
        lines.append(f"     {_paint(verdict, _GREEN if fine else _RED, colour)}  ({', '.join(figures)})")
    return "\n".join(lines)


def _paint(text: str, code: str, colour: bool) -> str:
    return f"{code}{text}{_PLAIN}" if colour else text


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
