"""What a scorer reads and returns: solutions, candidate steps and step scores. Imports no model code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Solution:
    """A problem and the steps of one solution."""

    id: str
    problem: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Steps that might follow ``prefix``."""

    problem: str
    prefix: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepScore:
    """Probabilities of ``<+>``; None where the variant has no such label. Mode ``pass1`` leaves the reward NaN."""

    math: float | None
    consistency: float | None
    error_free: float | None
    reward: float

    @property
    def labels(self) -> dict[str, bool]:
        """The first-pass labels (empty for a variant without subtasks)."""
        probabilities = {"math": self.math, "consistency": self.consistency, "error_free": self.error_free}
        return {name: p >= 0.5 for name, p in probabilities.items() if p is not None}

    @property
    def has_error(self) -> bool:
        """Whether any first-pass label is negative or, without subtasks, the reward is below one half."""
        return not all(self.labels.values()) if self.labels else self.reward < 0.5


RoundScorer = Callable[[Mapping[str, Candidates]], dict[str, list[StepScore]]]
"""Scores the candidates of a search's open problems, round after round. A key names the same problem in every round."""


class PRM(Protocol):
    """A model that scores steps: PathFinder-PRM in this process or behind a server, or a published PRM."""

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """Score every step of every solution; ``on_done`` receives how many more solutions are finished."""
        ...

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search."""
        ...
