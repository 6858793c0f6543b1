"""The input and output of a scorer: solutions, candidate steps and step scores. Imports no model code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pathfinder.core.prompts import FIRST_LABELS


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
    ``redundancy`` is the probability that the step is superfluous, from a published PRM that predicts it.
    """

    first: Mapping[str, float]
    reward: float
    other: str = field(default="", compare=False)
    redundancy: float | None = None

    @property
    def labels(self) -> dict[str, bool]:
        """The first-pass labels (empty for a variant without subtasks)."""
        return {name: p >= 0.5 for name, p in self.first.items()}

    @property
    def has_error(self) -> bool:
        """True if any first-pass label is negative or, without subtasks, the reward is below one half."""
        return not all(self.labels.values()) if self.first else self.reward < 0.5

    def row(self) -> dict[str, float | None]:
        """The score in prediction files; None for a label that the variant does not have."""
        return {**dict.fromkeys(FIRST_LABELS), **self.first, "reward": self.reward}


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdict on each step of a solution: correct or not and, from a system that judges it, redundant or not."""

    correct: Sequence[bool]
    redundant: Sequence[bool] | None = None


RoundScorer = Callable[[Mapping[str, Candidates]], Mapping[str, Sequence[StepScore | None]]]
"""Scores the candidates of a search's open problems, round after round. A key names the same problem in every round.

None is the score of a candidate whose prompt is longer than the model's context.
"""


class PRM(Protocol):
    """A model that scores steps: PathFinder-PRM in this process or behind a server, or a published PRM."""

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """Score every step of every solution; ``on_done`` receives how many more solutions are finished.

        A solution that is longer than the model's context has no scores.
        """

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search."""
