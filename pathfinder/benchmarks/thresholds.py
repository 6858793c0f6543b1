"""How ProcessBench's F1 depends on the threshold below which a step's score calls it wrong.

The prediction is the first step whose score is below the threshold. An item is then right for one interval of
thresholds, ``(low, high]``: where its wrong step is below and every step before it is not. So every threshold is
evaluated at once, exactly, from the stored scores.

A threshold may be fixed beforehand, or be the best on GSM8K and used on all subsets (the rule of the ProcessBench
paper for PRMs without a natural one). The best on the very items that are graded, the oracle's, is an upper bound and
no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks.processbench import NO_ERROR
from pathfinder.benchmarks.readers import SUBSETS, ProcessBenchItem

CHOSEN_ON = "gsm8k"
_POINTS = 20  # of the curve between the thresholds 0 and 1

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sweep:
    """F1 in percent (``f1``, shape (thresholds, subsets)) at each threshold that changes anything, ascending.

    Between two of them F1 is that of the higher; the last is infinite and calls every step wrong.
    """

    subsets: tuple[str, ...]
    thresholds: Floats
    f1: Floats

    def at(self, threshold: float) -> Floats:
        """F1 of each subset at any threshold, percent."""
        row: Floats = self.f1[int(np.searchsorted(self.thresholds, threshold))]
        return row

    def best(self, subset: str | None = None) -> float:
        """The lowest threshold with the highest F1 of a subset, or mean F1. Infinite where no step should pass."""
        over = self.f1.mean(1) if subset is None else self.f1[:, self.subsets.index(subset)]
        return float(self.thresholds[int(over.argmax())])

    def summary(self, fixed: float = 0.5) -> dict[str, Any]:
        """For a metrics file: F1 at ``fixed``, at GSM8K's best, at the oracle's (an upper bound), and the curve."""
        chosen = {"fixed": fixed} | ({"chosen_on_gsm8k": self.best(CHOSEN_ON)} if CHOSEN_ON in self.subsets else {})
        grid = [place / _POINTS for place in range(_POINTS + 1)]
        return {
            **{name: self._figures(threshold) for name, threshold in chosen.items()},
            "oracle_upper_bound": self._figures(self.best()),
            "curve": [[threshold, float(self.at(threshold).mean())] for threshold in grid],
        }

    def _figures(self, threshold: float) -> dict[str, Any]:
        f1 = self.at(threshold)
        said = threshold if np.isfinite(threshold) else None
        return {"threshold": said, "mean_f1": float(f1.mean())} | {
            "subsets": dict(zip(self.subsets, map(float, f1), strict=True))
        }


def sweep(items: Sequence[ProcessBenchItem], scores: Sequence[Sequence[float] | None]) -> Sweep:
    """Every threshold for ``items`` with the ``scores`` of their steps (any scale, higher is better).

    Degenerate classes count as in the repaired preset. A step without a score (NaN) is never below a threshold; a
    solution without scores is missed at all of them.
    """
    subsets = tuple(name for name in SUBSETS if any(item.subset == name for item in items))
    low, high = np.array([_interval(item, mine) for item, mine in zip(items, scores, strict=True)]).reshape(-1, 2).T
    finite = np.unique(np.concatenate([low, high]))
    thresholds = np.append(finite[np.isfinite(finite)], np.inf)
    begins, ends = np.searchsorted(thresholds, low, side="right"), np.searchsorted(thresholds, high, side="right")
    f1 = np.zeros((len(thresholds), len(subsets)))
    subset = np.array([subsets.index(item.subset) for item in items])
    wrong = np.array([item.label != NO_ERROR for item in items])
    for place in range(len(subsets)):
        accuracies = []
        for kind in (True, False):
            mine = (subset == place) & (wrong == kind) & (begins <= ends)
            steps = np.zeros(len(thresholds) + 1)
            np.add.at(steps, begins[mine], 1)
            np.add.at(steps, ends[mine], -1)
            count = max(int(((subset == place) & (wrong == kind)).sum()), 1)
            accuracies.append(100 * np.rint(np.cumsum(steps[:-1])) / count)
        total = accuracies[0] + accuracies[1]
        np.divide(2 * accuracies[0] * accuracies[1], total, out=f1[:, place], where=total > 0)
    return Sweep(subsets, thresholds, f1)


def _interval(item: ProcessBenchItem, scores: Sequence[float] | None) -> tuple[float, float]:
    """The thresholds for which the prediction is the label: above the first, up to the second."""
    if scores is None:
        return np.inf, -np.inf
    known = [np.inf if np.isnan(score) else float(score) for score in scores]
    if item.label == NO_ERROR:
        return -np.inf, min(known, default=np.inf)
    if item.label >= len(known):
        return np.inf, -np.inf
    return known[item.label], min(known[: item.label], default=np.inf)
