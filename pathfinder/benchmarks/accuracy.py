"""Accuracy over several sets: each set's mean, their plain mean, and its interval, in percent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks.bootstrap import interval
from pathfinder.core.params import Report


def by_set(sets: Sequence[str], values: Sequence[float], report: Report) -> tuple[dict[str, float], float, list[float]]:
    """Means of ``values`` (shares, one a problem) by set, their plain mean and its bootstrap interval."""
    names = list(dict.fromkeys(sets))
    groups = np.array([names.index(name) for name in sets], dtype=np.int64)
    shares = np.asarray(values, dtype=np.float64)

    def means(rows: npt.NDArray[np.int64] | slice) -> npt.NDArray[np.float64]:
        sums = np.bincount(groups[rows], weights=shares[rows], minlength=len(names))
        return np.asarray(100 * sums / np.bincount(groups[rows], minlength=len(names)), dtype=np.float64)

    bounds = interval(
        len(sets),
        lambda rows: float(means(rows).mean()),
        report.bootstrap_samples,
        report.confidence,
        report.seed,
        strata=sets,
    )
    everyone = means(slice(None))
    return {name: float(everyone[i]) for i, name in enumerate(names)}, float(everyone.mean()), list(bounds)


def metrics(sets: Sequence[str], figures: dict[str, Sequence[float]], report: Report) -> dict[str, Any]:
    """``{"sets": {set: {figure, …, "n"}}, "average": {figure: …}, "intervals": {figure: [low, high]}}``."""
    out: dict[str, Any] = {
        "sets": {name: {"n": list(sets).count(name)} for name in sets},
        "average": {},
        "intervals": {},
    }
    for figure, values in figures.items():
        means, out["average"][figure], out["intervals"][figure] = by_set(sets, values, report)
        for name, mean in means.items():
            out["sets"][name][figure] = mean
    return out
