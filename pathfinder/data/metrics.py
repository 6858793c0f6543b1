"""The metrics of the stages that make the training data: prepare, filter, truth and build. Counts are records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from pathfinder.core.metrics import Counts, Figure, Flow, Metrics, Pair, Stage, Whole


class Lines(Metrics):
    """Upstream lines."""

    read: Whole
    kept: Whole = 0
    quarantined: Whole


class Upstream(Flow):
    """The lines and records of the upstream files."""

    lines: Lines | None = None
    notes: Counts = {}


class Prepare(Upstream, Stage):
    """Metrics of the stage prepare. A repeat has the problem, prefix and step of an earlier record."""

    sources: Mapping[str, Upstream] = {}
    exact_repeats: Whole = 0
    conflicting_ratings: Whole = 0
    trajectories: Whole = 0
    preset: str = ""


class Filter(Stage):
    """Metrics of the stage filter; ``positive_share`` by label."""

    positive_share: dict[str, Figure] = {}


class Rate(Metrics):
    """A share in percent and its interval; both are null if nothing was counted."""

    value: Figure
    interval: Pair | None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.value is None) != (self.interval is None):
            raise ValueError("value and interval are not both given")
        return self


class Judged(Metrics):
    """Figures of the judge and of the consistency filter on steps whose truth is known.

    ``wrong`` is the share of incorrect steps, which is also the ``error_precision`` of a judge that flags every step.
    ``error_recall`` and ``false_alarms`` do not depend on that share.
    """

    steps: Whole
    kept: Whole
    wrong: Rate = Field(title="incorrect steps")
    error_recall: Rate = Field(title="error recall")
    error_precision: Rate = Field(title="error precision")
    false_alarms: Rate = Field(title="correct steps flagged")
    labels_right: Rate = Field(title="labels correct")
    labels_right_kept: Rate = Field(title="labels correct if kept")
    labels_right_dropped: Rate = Field(title="labels correct if dropped")


class Truth(Metrics):
    """Metrics of the stage truth; ``groups`` are named by source and rating, such as ``prm800k:-1``."""

    judged: Whole = 0
    all: Judged
    groups: dict[str, Judged]


class Shared(Metrics):
    """Items and steps of a benchmark that the training data contain."""

    exact_problems: Whole
    near_problems: Whole
    exact_steps: Whole
    exact_short_steps: Whole = 0
    near_steps: Whole


class Overlap(Shared):
    """A benchmark's size, and how much of it all data, the chosen data (``kept``) and each source contain."""

    items: Whole
    steps: Whole
    short_steps: Whole = 0
    kept: Shared | None = None
    sources: dict[str, Shared]


class Side(Metrics):
    """One side of the split."""

    trees: Whole
    problems: Whole
    records: Whole
    sources: Counts


class Removed(Metrics):
    """The records that a benchmark removed from the training data."""

    problems: Whole
    records: Whole


class Build(Stage):
    """Metrics of the stage build; ``overlap`` and ``removed`` by benchmark and class."""

    train: Side
    test: Side
    near_duplicate_problems: Whole = 0
    overlap: dict[str, Overlap]
    removed: dict[str, Removed] = {}
