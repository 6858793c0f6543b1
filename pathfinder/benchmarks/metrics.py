"""The metrics of a system on ProcessBench and PRMBench, in percent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from pathfinder.core.metrics import Counts, Figure, Measured, Metrics, Number, Pair, Whole


class Evaluated(Measured):
    """Everything that ``Evaluation`` reports on both benchmarks.

    ``decision`` holds the rules of a published PRM. ``votes``, ``asked`` and ``published`` (the paper's figures,
    empty if its votes are others) belong to an LLM judge.
    """

    read: Whole = 0
    quarantined: Counts = {}
    defects: Counts = {}
    system: str = ""
    decision: dict[str, dict[str, Any]] = {}
    votes: Whole = 0
    asked: Mapping[str, Whole | Counts] = {}
    published: dict[str, Number] = {}


class Subset(Metrics):
    """A subset of ProcessBench: the accuracies on solutions with and without an error, and their F1."""

    f1: Figure
    error_acc: Figure = None
    correct_acc: Figure = None
    n_error: Whole = 0
    n_correct: Whole = 0


class Generator(Metrics):
    """The ``n`` solutions of one model in ProcessBench."""

    n: Whole
    f1: Figure = None
    error_acc: Figure = None
    correct_acc: Figure = None


class Threshold(Metrics):
    """F1 at a threshold of the reward; ``None`` if the threshold flags every step."""

    threshold: Figure
    mean_f1: Figure
    subsets: dict[str, Figure]


class Thresholds(Metrics):
    """F1 at other thresholds; ``curve`` has pairs of threshold and mean F1."""

    curve: Annotated[list[Pair], Field(min_length=1)]
    fixed: Threshold | None = Field(None, title="fixed")
    chosen_on_gsm8k: Threshold | None = Field(None, title="best on GSM8K")
    oracle_upper_bound: Threshold | None = Field(None, title="best on the test items")


class EarlyStop(Metrics):
    """Steps in all, and steps that were scored."""

    steps: Whole
    scored: Whole


class ProcessBench(Evaluated):
    """A system on ProcessBench, or one reading or baseline of it (the first two keys and ``interval``)."""

    mean_f1: Figure
    subsets: dict[str, Subset] = {}
    baselines: Mapping[str, ProcessBench] = {}
    readings: Mapping[str, ProcessBench] = {}
    rules: Mapping[str, ProcessBench] = {}
    official: ProcessBench | None = None
    generators: dict[str, Generator] = {}
    thresholds: Thresholds | None = None
    early_stop: EarlyStop | None = None

    @property
    def headline(self) -> float | None:
        """The mean F1."""
        return self.mean_f1

    def score(self, column: str) -> float | None:
        """The mean F1, or the F1 of a subset."""
        if column == "mean_f1":
            return self.mean_f1
        return self.subsets[column].f1 if column in self.subsets else None


class Auxiliary(Metrics):
    """The published evaluator's auxiliary figures: shares and counts by name."""

    total: dict[str, Figure] = {}
    classes: dict[str, dict[str, Figure]] = {}
    validity_rate: Number = 0.0
    defects: Counts = {}


class PRMBench(Evaluated):
    """A system on PRMBench, or one reading or baseline of it; ``overall`` is the PRMScore."""

    overall: Figure
    classes: dict[str, Figure] = {}
    categories: dict[str, Figure] = {}
    baselines: Mapping[str, PRMBench] = {}
    readings: Mapping[str, PRMBench] = {}
    rules: Mapping[str, PRMBench] = {}
    official: PRMBench | None = None
    details: Auxiliary | None = None

    @property
    def headline(self) -> float | None:
        """The PRMScore."""
        return self.overall

    def score(self, column: str) -> float | None:
        """The PRMScore, or the score of a class or category."""
        return self.overall if column == "overall" else self.classes.get(column, self.categories.get(column))
