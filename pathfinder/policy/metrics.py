"""The metrics of searches and of whole solutions, in percent."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from pathfinder.benchmarks.paper import SIZES
from pathfinder.core.metrics import Counts, Figure, Measured, Metrics, Number, Pair, Whole


class Details(Metrics):
    """How problems ended, and the calls that they needed; a search and a sampling count different things."""

    finished: Whole | None = Field(None, title="finished")
    without_step: Whole | None = Field(None, title="without a step")
    without_answer: Whole | None = Field(None, title="without an answer")
    rounds: Whole | None = Field(None, title="rounds")
    candidates: Whole | None = Field(None, title="candidates")
    candidates_rejected: Whole | None = Field(None, title="rejected")
    policy_calls: Whole | None = Field(None, title="sequential calls")
    policy_calls_one_problem_at_a_time: Whole | None = Field(None, title="one problem at a time")
    not_graded: Whole | None = Field(None, title="answers without a verdict")
    rounds_without_choice: Whole | None = None
    too_long: Whole | None = None
    samples: Whole | None = None
    samples_without_answer: Whole | None = None
    samples_cut: Whole | None = None
    samples_too_long: Whole | None = None
    defects: Counts = {}
    grading_failures: Counts = {}


class Choices(Metrics):
    """Figures by name: in each set (with its size ``n``), as means over the sets, and intervals of the means."""

    sets: dict[str, dict[str, Figure]] = {}
    average: dict[str, Number]
    intervals: dict[str, Pair] = {}

    def score(self, name: str, column: str) -> float | None:
        """A figure in a set, or its mean in the column ``average``."""
        return self.average.get(name) if column == "average" else self.sets.get(column, {}).get(name)


class BestOfN(Choices):
    """Whole solutions chosen by their rewards: a figure per rule of ``choosing``.

    ``soundness`` has the same figures by the soundness of the steps, if the system has that reading.
    """

    n: Whole | None = None
    too_long: Whole = 0
    soundness: Choices | None = None


class Sample(Choices):
    """Metrics of the stage sample: pass@1, maj@n and pass@n."""

    read: Whole = 0
    kept: Whole = 0
    dropped: Counts = {}
    quarantined: Counts = {}
    intervals: dict[str, Pair]
    sets: dict[str, dict[str, Figure]]
    details: Details

    @model_validator(mode="after")
    def _same_names(self) -> Self:
        if self.average.keys() != self.intervals.keys():
            raise ValueError("the keys of average and intervals differ")
        return self


class Search(Measured):
    """A system's guided search, or the same answers under one grading: ``official`` or ``repaired``."""

    read: Whole = 0
    quarantined: Counts = {}
    average: Figure
    sets: dict[str, dict[str, Figure]] = {}
    official: Search | None = None
    repaired: Search | None = None
    best_of_n: BestOfN | None = None
    system: str = ""
    details: Details | None = None

    @property
    def headline(self) -> float | None:
        """The mean accuracy over the sets."""
        return self.average

    @property
    def is_whole(self) -> bool:
        """False if a limit left problems out, or sets, their sizes or the number of candidates are not the paper's."""
        sizes = {name: found.get("n") for name, found in self.sets.items()}
        return sizes == SIZES["search"] and all("prm@8" in found for found in self.sets.values()) and super().is_whole

    @property
    def by_default_rule(self) -> Search:
        """The figures of our default grading."""
        return self.repaired or self

    def score(self, column: str) -> float | None:
        """The mean accuracy, or the accuracy on a set."""
        if column == "average":
            return self.average
        return next((value for name, value in self.sets.get(column, {}).items() if name != "n"), None)
