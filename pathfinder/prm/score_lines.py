"""Scores for people: read solutions from JSON Lines, write scores as JSON or draw them for a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from pathfinder.core.io import DataError, parse_jsonl, read_jsonl
from pathfinder.core.steps import Solution, StepScore
from pathfinder.core.text import printable

PRINTED = 512
"""Solutions that are scored before their rows are printed, so that an interruption loses no more."""


def batched(solutions: Sequence[Solution], size: int) -> Iterator[Sequence[Solution]]:
    """The solutions in parts of ``size``."""
    return (solutions[start : start + size] for start in range(0, len(solutions), size))


def read_solutions(source: str) -> list[Solution]:
    """Read rows ``{"id", "problem", "steps": […]}`` from a file, or from standard input for ``-``.

    Raises ``DataError`` naming the file and line of a bad row, or a file without rows.
    """
    if source == "-":
        source, rows = "standard input", parse_jsonl(sys.stdin.buffer, "standard input")
    elif Path(source).is_file():
        rows = read_jsonl(Path(source))
    else:
        raise DataError(f"{source}: no such file; give a JSON Lines file or - for standard input")
    solutions = [_solution(row, f"{source}:{number}") for number, row in rows]
    if not solutions:
        raise DataError(f"{source}: contains no solution; give one JSON object per line")
    return solutions


def _solution(row: Any, place: str) -> Solution:
    match row:
        case {"id": str() | int() as name, "problem": str() as problem, "steps": [*steps]}:
            if steps and all(isinstance(step, str) for step in steps) and not isinstance(name, bool):
                return Solution(str(name), problem, tuple(steps))
    raise DataError(
        f"{place}: expected an object with id (string or integer), problem (string) and steps (non-empty list of "
        f"strings), found {ascii(row)[:200]}; correct or remove the line"
    )


def score_row(solution: Solution, scores: Sequence[StepScore]) -> dict[str, Any]:
    """``{"id", "steps": [{"math", "consistency", "reward", …, "labels": {…}}]}`` with probabilities of ``<+>``.

    A label that the model does not have is null or missing; the reward is null if the mode does not ask for it. A
    solution that is longer than the model's context has no steps and ``"too_long": true``.
    """
    empty = {"math": None, "consistency": None}
    steps = [{**empty, "reward": _reward(score), **score.first, "labels": score.labels} for score in scores]
    return {"id": solution.id, "steps": steps} | ({} if steps else {"too_long": True})


def _reward(score: StepScore) -> float | None:
    return None if math.isnan(score.reward) else score.reward


def render_scores(solution: Solution, scores: Sequence[StepScore]) -> str:
    """One problem in the colours of a terminal, with the probabilities and typed errors of every step.

    Control characters are shown as escapes, so that no text can control the terminal.
    """
    lines = [typer.style(printable(solution.problem), dim=True), ""]
    if not scores:
        return "\n".join([*lines, typer.style("longer than the model's context: no scores", fg=typer.colors.RED)])
    for number, (step, score) in enumerate(zip(solution.steps, scores, strict=True), start=1):
        wrong = [name for name, positive in score.labels.items() if not positive]
        errors = ["error" if name == "error_free" else f"{name} error" for name in wrong]
        reward = _reward(score)
        fine = not errors and (reward is None or reward >= 0.5)
        verdict = "ok" if fine else ", ".join(errors) or "low reward (no typed error)"
        shown = dict(score.first) if reward is None else {**score.first, "reward": reward}
        figures = ", ".join(f"{name.replace('_', '-')} {p:.2f}" for name, p in shown.items())
        verdict = typer.style(verdict, fg=typer.colors.GREEN if fine else typer.colors.RED)
        lines += [f"{number:3d}  {printable(step)}", f"     {verdict}  ({figures})"]
    return "\n".join(lines)
