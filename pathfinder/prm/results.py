"""Typed results for people and programs: what a PRM says of each step, with its verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn

from ground.io import DataError
from pathfinder.core.steps import Solution, StepScore

TOO_LONG = "longer than the model's context"
"""The reason of a solution without scores."""

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True, slots=True)
class ScoredStep:
    """The typed score of one step.

    ``probabilities`` maps the labels of the first pass to the probability that the step has *no* error of that kind:
    ``math`` and ``consistency`` or, for the variant without separate categories, ``error_free``. ``reward`` is the
    probability that the step is correct given the predicted labels; None in mode "pass1". All are between 0 and 1, and
    higher is better.
    """

    text: str
    probabilities: Mapping[str, float]
    reward: float | None

    @property
    def math(self) -> float | None:
        """The probability of no math error; None for a model without this label."""
        return self.probabilities.get("math")

    @property
    def consistency(self) -> float | None:
        """The probability that the step is consistent with what precedes it; None for a model without this label."""
        return self.probabilities.get("consistency")

    @property
    def errors(self) -> tuple[str, ...]:
        """The kinds of error that the model predicts: the names whose probability is below one half."""
        return tuple(name for name, p in self.probabilities.items() if p < 0.5)

    @property
    def correct(self) -> bool:
        """Whether no error is predicted and the reward, if there is one, is at least one half."""
        return not self.errors and (self.reward is None or self.reward >= 0.5)

    @property
    def findings(self) -> tuple[str, ...]:
        """What is wrong with the step, in words: the predicted errors or, if there are none, a low reward."""
        named = tuple("error" if name == "error_free" else f"{name} error" for name in self.errors)
        return named or (() if self.correct else ("low reward",))

    def row(self) -> dict[str, Any]:
        """The step in JSON, without its text: the same keys in ``score``, in ``demo`` and over HTTP."""
        return {
            "math": self.math,
            "consistency": self.consistency,
            "reward": self.reward,
            "probabilities": dict(self.probabilities),
            "errors": list(self.errors),
            "correct": self.correct,
        }


@dataclass(frozen=True, slots=True)
class ScoredSolution:
    """The scores of a solution's steps."""

    problem: str
    steps: tuple[ScoredStep, ...]
    scored: ClassVar[Literal[True]] = True

    @property
    def first_error(self) -> int | None:
        """The index of the first step that is not correct, from 0; None if every step is."""
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
        return {"scored": True, "steps": [step.row() for step in self.steps], "first_error": self.first_error}


@dataclass(frozen=True, slots=True)
class UnscoredSolution:
    """A solution without scores, and the ``reason``. Steps, first error and rewards raise ``DataError``."""

    problem: str
    reason: str
    scored: ClassVar[Literal[False]] = False

    @property
    def steps(self) -> NoReturn:
        """Raises ``DataError``."""
        raise DataError(f"the solution has no scores: it is {self.reason}; shorten it, or ask for `scored` first")

    first_error = rewards = steps

    def row(self) -> dict[str, Any]:
        """The solution in JSON: neither steps nor a first error."""
        return {"scored": False, "reason": self.reason}


def scored_solution(solution: Solution, scores: Sequence[StepScore]) -> ScoredSolution | UnscoredSolution:
    """The typed result of a solution; no scores stand for one that is longer than the model's context."""
    if not scores:
        return UnscoredSolution(solution.problem, TOO_LONG)
    steps = tuple(
        ScoredStep(text, dict(score.first), None if math.isnan(score.reward) else score.reward)
        for text, score in zip(solution.steps, scores, strict=True)
    )
    return ScoredSolution(solution.problem, steps)


def split_steps(text: str) -> list[str]:
    """The parts of a text between blank lines, without empty ones. Line ends of Windows become those of Unix."""
    return [step for part in _BLANK_LINES.split(text.replace("\r\n", "\n")) if (step := part.strip())]
