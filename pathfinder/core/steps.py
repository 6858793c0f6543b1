"""The input and output of a scorer: solutions, candidate steps and step scores. Imports no model code."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pathfinder.core.labels import OPTIMALITY
from pathfinder.core.prompts import FIRST_LABELS
from pathfinder.core.readings import DEFINITION, Reading, error_labels


@dataclass(frozen=True, slots=True)
class Solution:
    """A problem and the steps of one solution."""

    id: str
    problem: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Distinct steps that might follow ``prefix``. ``counts``: the number of samples per step in round ``round``."""

    problem: str
    prefix: tuple[str, ...]
    steps: tuple[str, ...]
    counts: tuple[int, ...] = ()
    round: int = 0


@dataclass(frozen=True, slots=True)
class StepScore:
    """Probabilities of ``<+>``: ``first`` per first-pass label of the variant. Mode ``pass1`` leaves the reward NaN.

    ``other`` names a first-pass label at which the likeliest token is neither ``<+>`` nor ``<->``, if there is one.
    ``redundancy`` is the probability that the step is superfluous, from a published PRM that predicts it. ``means`` is
    the reading that the reward gives, None for the only score of a published PRM. ``core.readings`` explains them.
    """

    first: Mapping[str, float]
    reward: float
    other: str = field(default="", compare=False)
    redundancy: float | None = None
    means: Reading | None = "quality"

    @property
    def labels(self) -> dict[str, bool]:
        """The first-pass labels (empty for a variant without subtasks)."""
        return {name: p >= 0.5 for name, p in self.first.items()}

    @property
    def soundness(self) -> float | None:
        """The probability of no error: the smaller of the error labels, or the validity of a published PRM."""
        if errors := error_labels(self.first):
            return min(errors.values())
        return None if self.redundancy is None else self.reward

    @property
    def quality(self) -> float | None:
        """The probability that the step has no error and is useful."""
        if self.redundancy is not None:
            return max(0.0, self.reward - self.redundancy)
        return self.reward if self.means == "quality" and not math.isnan(self.reward) else None

    @property
    def optimality(self) -> float | None:
        """The probability that the step is useful if it has no error; None for a step with a predicted error."""
        if OPTIMALITY in self.first:
            return self.first[OPTIMALITY]
        if self.soundness is None or self.quality is None or self.has_error:
            return None
        return self.quality if self.redundancy is None else self.quality / self.soundness

    def read(self, reading: str) -> float:
        """The value of ``"soundness"`` or ``"quality"`` or, without it, the value that the score has."""
        wanted, other = (self.soundness, self.quality) if reading == "soundness" else (self.quality, self.soundness)
        found = other if wanted is None else wanted
        return self.reward if found is None else found

    @property
    def has_error(self) -> bool:
        """True if an error label is negative or, without error labels, the reward is below one half."""
        return self.read("soundness") < 0.5

    @classmethod
    def of_row(cls, row: Mapping[str, float | None]) -> StepScore:
        """The score of one of our systems from a step of its prediction row; further keys are ignored."""
        given = {name: p for name in (*FIRST_LABELS, OPTIMALITY) if (p := row.get(name)) is not None}
        reward = row.get("reward")
        is_only_label = len(given) == 1 and reward is not None and reward in given.values()
        return cls(given, math.nan if reward is None else reward, means="soundness" if is_only_label else "quality")

    def row(self) -> dict[str, float | None]:
        """The score in prediction files; None for a label that the variant does not have."""
        reward = None if math.isnan(self.reward) else self.reward
        return {**dict.fromkeys(FIRST_LABELS), **self.first, "reward": reward}


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdict on each step of a solution: correct or not and, from a system that judges it, redundant or not."""

    correct: Sequence[bool]
    redundant: Sequence[bool] | None = None


def by_reading(steps: Sequence[StepScore], reading: str, threshold: float = 0.5) -> Verdicts:
    """The verdicts by a reading; by definition, soundness decides on correctness and quality on redundancy."""
    if reading != DEFINITION:
        return Verdicts([step.read(reading) >= threshold for step in steps])
    redundant = [step.read("quality") < threshold for step in steps]
    return Verdicts([step.read("soundness") >= threshold for step in steps], redundant)


RoundScorer = Callable[[Mapping[str, Candidates]], Mapping[str, Sequence[StepScore | None]]]
"""Scores the candidates of a search's open problems, round after round. A key names the same problem in every round.

None is the score of a candidate whose prompt is longer than the model's context.
"""


class PRM(Protocol):
    """A model that scores steps: PathFinder-PRM in this process or behind a server, or a published PRM."""

    def unlike(self, solution: Solution) -> tuple[str, ...]:
        """How a solution differs from all that a small model learnt from, in words; empty for other models."""
        return ()

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """Score every step of every solution; ``on_done`` receives how many more solutions are finished.

        A solution that is longer than the model's context has no scores.
        """

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search."""
