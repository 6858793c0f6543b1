"""Accuracy over several sets, in percent: each set's mean, the plain mean of these, and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks.bootstrap import Indices, interval, sums
from pathfinder.core.params import Report


def by_set(sets: Sequence[str], values: Sequence[float], report: Report) -> tuple[dict[str, float], float, list[float]]:
    """Means of ``values`` (shares, one per problem) by set, their plain mean and its bootstrap interval."""
    names = list(dict.fromkeys(sets))
    groups = np.array([names.index(name) for name in sets], dtype=np.int64)
    shares = np.asarray(values, dtype=np.float64)

    def means(rows: Indices) -> npt.NDArray[np.float64]:
        return 100 * sums(rows, groups, len(names), shares) / sums(rows, groups, len(names))

    bounds = interval(len(sets), lambda rows: means(rows).mean(-1), report, sets)
    found = means(np.arange(len(sets)))
    return dict(zip(names, found.tolist(), strict=True)), float(found.mean()), bounds


def metrics(sets: Sequence[str], figures: dict[str, Sequence[float]], report: Report) -> dict[str, Any]:
    """``{"sets": {set: {figure, …, "n"}}, "average": {figure: …}, "intervals": {figure: [low, high]}}``."""
    found = {figure: by_set(sets, values, report) for figure, values in figures.items()}
    return {
        "sets": {
            name: {"n": list(sets).count(name)} | {figure: means[name] for figure, (means, _, _) in found.items()}
            for name in dict.fromkeys(sets)
        },
        "average": {figure: average for figure, (_, average, _) in found.items()},
        "intervals": {figure: interval for figure, (_, _, interval) in found.items()},
    }
