"""The judge and the consistency filter, measured against the ground truth of a generated world.

The oracle parses the story from the problem's text and judges each step again, given the steps before it. The truth of
problems from real sources is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from ground.io import DataError
from pathfinder.benchmarks.bootstrap import Indices, interval
from pathfinder.core.labels import is_labelled
from pathfinder.core.params import Report
from pathfinder.data.metrics import Judged, Rate
from world.oracle import Verdict, assess_all
from world.story import read_story

KNOWN = {
    "group": pl.String(),  # source and rating, "prm800k:-1"
    "problem_id": pl.String(),
    "is_wrong": pl.Boolean(),  # the step has a math or a consistency error
    "is_called_wrong": pl.Boolean(),  # the judge's math or consistency score is 0
    "is_right": pl.Boolean(),  # both scores equal the truth
    "is_kept": pl.Boolean(),  # by the consistency filter
}


def verdict_of(problem: str, before: Iterable[str], step: str) -> Verdict | None:
    """The oracle's verdict on ``step``; ``None`` if the problem is not a story or a step is outside the grammar."""
    try:
        story = read_story(problem)
    except DataError:
        return None
    return assess_all(story, [*before, step])[-1]


def known(steps: pl.DataFrame, trajectories: pl.DataFrame, labels: pl.DataFrame, kept: pl.Series) -> pl.DataFrame:
    """A row (``KNOWN``) for each step with judge scores and a known truth.

    The tables come from prepare and label; ``kept`` has the ids of the steps that the filter kept.
    """
    judged = (
        labels.filter((pl.col("origin") == "judge") & is_labelled())
        .join(steps, on="id", how="inner", maintain_order="left")
        .join(trajectories.select("trajectory_id", "problem_id", "problem", "steps"), on="trajectory_id", how="left")
        .with_columns(is_kept=pl.col("id").is_in(kept.implode()))
    )
    rows = []
    for row in judged.iter_rows(named=True):
        if verdict := verdict_of(row["problem"], row["steps"][: row["step_index"]], row["step"]):
            group, scores = f"{row['source']}:{row['rating']:+d}", (row["math"], row["consistency"])
            judged_as = (not verdict.is_correct, not all(scores), scores == verdict.labels[:2])
            rows.append((group, row["problem_id"], *judged_as, row["is_kept"]))
    return pl.DataFrame(rows, schema=KNOWN, orient="row")


def figures(rows: pl.DataFrame, report: Report) -> Judged:
    """Rates of ``known`` rows in percent with bootstrap intervals by problem."""
    wrong, called, right, kept = (pl.col(name) for name in ("is_wrong", "is_called_wrong", "is_right", "is_kept"))
    every = wrong.is_not_null()
    rate = partial(_rate, rows, report)
    return Judged(
        steps=len(rows),
        kept=int(rows["is_kept"].sum()),
        wrong=rate(wrong, every),
        error_recall=rate(called & wrong, wrong),
        error_precision=rate(called & wrong, called),
        false_alarms=rate(called & ~wrong, ~wrong),
        labels_right=rate(right, every),
        labels_right_kept=rate(right & kept, kept),
        labels_right_dropped=rate(right & ~kept, ~kept),
    )


def _rate(rows: pl.DataFrame, report: Report, part: pl.Expr, whole: pl.Expr) -> Rate:
    by_problem = rows.group_by("problem_id", maintain_order=True).agg(part=part.sum(), whole=whole.sum())
    parts, wholes = by_problem["part"].to_numpy(), by_problem["whole"].to_numpy()
    if not wholes.sum():
        return Rate(value=None, interval=None)

    def percent(taken: Indices) -> Any:
        return 100 * parts[taken].sum(-1, dtype=float) / np.maximum(1.0, wholes[taken].sum(-1, dtype=float))

    bounds = interval(len(parts), percent, report)
    return Rate(value=float(percent(np.arange(len(parts)))), interval=bounds)
