"""Given solutions and their typed results in every form: JSON rows, predictions, pictures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn

from ground.io import DataError
from ground.text import printable
from pathfinder.core.given import Given
from pathfinder.core.readings import DEFINITION
from pathfinder.core.steps import PRM, ScoredStep, Solution, StepScore, by_reading, typed_step

Form = Literal["processbench", "prmbench"]
"""Prediction files that can be written."""
PRINTED = 512
"""The number of solutions that are scored before their rows are printed; an interruption loses at most these."""

TOO_LONG = "longer than the model's context"
"""The reason of a solution without scores."""
NO_STEP = "empty"
"""The reason of a solution without text."""


@dataclass(frozen=True, slots=True)
class ScoredSolution:
    """The scores of a solution's steps.

    ``unlike`` says how the solution differs from all texts that a small model learnt from; its scores then mean little.
    """

    problem: str
    steps: tuple[ScoredStep, ...]
    unlike: tuple[str, ...] = ()
    scored: ClassVar[Literal[True]] = True

    @property
    def first_error(self) -> int | None:
        """The index of the first incorrect step, from 0; None if all steps are correct."""
        return next((place for place, step in enumerate(self.steps) if not step.correct), None)

    @property
    def rewards(self) -> list[float]:
        """The rewards in the order of the steps. Raises ``DataError`` in mode "pass1", which gives none."""
        found = [step.reward for step in self.steps if step.reward is not None]
        if len(found) < len(self.steps):
            raise DataError('mode "pass1" gives no rewards; load the model with mode "both"')
        return found

    def row(self) -> dict[str, Any]:
        """The solution in JSON, without its texts."""
        steps = [step.row() for step in self.steps]
        return {"scored": True, "steps": steps, "first_error": self.first_error, "unlike": list(self.unlike)}


@dataclass(frozen=True, slots=True)
class UnscoredSolution:
    """A solution without scores, and the ``reason``. Steps, first error and rewards raise ``DataError``."""

    problem: str
    reason: str
    scored: ClassVar[Literal[False]] = False

    @property
    def steps(self) -> NoReturn:
        """Raises ``DataError``."""
        raise DataError(f"the solution has no scores: it is {self.reason}; change it, or ask for `scored` first")

    first_error = rewards = steps

    def row(self) -> dict[str, Any]:
        """The solution in JSON, without steps and first error."""
        return {"scored": False, "reason": self.reason}


def scored_solution(
    solution: Solution, scores: Sequence[StepScore], unlike: tuple[str, ...] = ()
) -> ScoredSolution | UnscoredSolution:
    """The typed result of a solution. Without scores, it is longer than the model's context or has no step.

    ``unlike`` is the result of ``Known.unlike`` for it.
    """
    if not scores:
        return UnscoredSolution(solution.problem, TOO_LONG if solution.steps else NO_STEP)
    steps = tuple(typed_step(text, score) for text, score in zip(solution.steps, scores, strict=True))
    return ScoredSolution(solution.problem, steps, unlike)


def batched(solutions: Sequence[Solution]) -> Iterator[Sequence[Solution]]:
    """The solutions in parts of ``PRINTED``."""
    return (solutions[start : start + PRINTED] for start in range(0, len(solutions), PRINTED))


def read_solutions(given: Given) -> list[Solution]:
    """The solutions of a file, each with the name and the steps that it is scored with."""
    return [Solution(one.id, one.problem, one.steps) for one in given.each()]


def scored_part(
    prm: PRM, part: Sequence[Solution], on_done: Callable[[int], None] | None = None
) -> list[list[StepScore]]:
    """``prm.score`` on the solutions that have steps; the rest have no scores."""
    whole = [solution for solution in part if solution.steps]
    scores = iter(prm.score(whole, on_done) if whole else [])
    if on_done is not None and len(whole) < len(part):
        on_done(len(part) - len(whole))
    return [next(scores) if solution.steps else [] for solution in part]


def prediction(form: Form, solution: Solution, scores: Sequence[StepScore]) -> dict[str, Any]:
    """The row of a prediction file that ``pathfinder grade`` reads, by the reading that the benchmark declares.

    A score without that reading is read by the reading that it has. ProcessBench's subset is the part of the id before
    its last hyphen.
    """
    if form == "prmbench":
        has_both = all(step.soundness is not None and step.quality is not None for step in scores)
        verdicts = by_reading(scores, DEFINITION if has_both else "soundness")
        labels = {"step_level_validity_labels": verdicts.correct}
        labels |= {} if verdicts.redundant is None else {"step_level_redundancy_labels": verdicts.redundant}
        invalid = {"idx": solution.id, "scores": {}, "validity": False}
        return {"idx": solution.id, "scores": labels} if scores else invalid
    verdicts = by_reading(scores, "soundness")
    found = next((place for place, is_correct in enumerate(verdicts.correct) if not is_correct), -1)
    subset = solution.id.rpartition("-")[0]
    return {"subset": subset, "id": solution.id, "prediction": found if scores else None}


def score_row(solution: Solution, scores: Sequence[StepScore], unlike: tuple[str, ...] = ()) -> dict[str, Any]:
    """``{"id", "scored": true, "steps": […], "first_error", "unlike"}`` or ``{"id", "scored": false, "reason"}``."""
    return {"id": solution.id, **scored_solution(solution, scores, unlike).row()}


def warning(unlike: Sequence[str]) -> str:
    """A sentence that tells a reader what ``unlike`` means for the scores; empty if it says nothing."""
    found = "; ".join(unlike)
    return f"These scores mean little: the solution is unlike all that the model learnt from ({found})." * bool(found)


def render_scores(
    solution: Solution,
    scores: Sequence[StepScore],
    has_colour: bool = False,
    unlike: tuple[str, ...] = (),
    columns: int = sys.maxsize,
) -> str:
    """One problem for a terminal: the picture of its typed step scores.

    Control characters are shown as escapes, so that no text can control the terminal.
    """
    if not scores:
        return f"{printable(solution.problem)}\n\nnot scored: {TOO_LONG if solution.steps else NO_STEP}"
    from pathfinder.pages.picture import as_text, picture_of  # only a picture needs the pages

    drawn = as_text(picture_of(solution.problem, scored_solution(solution, scores).steps), has_colour, columns)
    return f"{drawn}\n\n{printable(warning(unlike))}" if unlike else drawn
