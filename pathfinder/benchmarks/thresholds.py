"""ProcessBench's F1 at every threshold below which a step's score makes the step incorrect.

The prediction is the first step whose score is below the threshold. An item is then predicted correctly in one interval
of thresholds, ``(low, high]``: only there is its first incorrect step the first below the threshold. So the stored
scores give the exact F1 of all thresholds at once.

A threshold may be fixed in advance, or be the best on GSM8K and used on all subsets (the ProcessBench paper's rule for
PRMs without a natural threshold); then GSM8K's own F1 is an upper bound. The oracle's threshold, which is best on the
graded items themselves, gives an upper bound, not a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pathfinder.benchmarks.metrics import Threshold, Thresholds
from pathfinder.benchmarks.processbench import NO_ERROR, Floats, f1_of, subsets_of
from pathfinder.benchmarks.readers import ProcessBenchItem

CHOSEN_ON = "gsm8k"
_POINTS = 20  # of the curve between the thresholds 0 and 1


@dataclass(frozen=True, slots=True)
class Sweep:
    """F1 in percent (``f1``, shape (thresholds, subsets)) at each threshold that changes a prediction, ascending.

    Between two thresholds, the F1 of the higher one applies. The last threshold is infinite: every step is incorrect.
    """

    subsets: tuple[str, ...]
    thresholds: Floats
    f1: Floats

    def at(self, threshold: float) -> Floats:
        """F1 of each subset at any threshold, percent."""
        row: Floats = self.f1[int(np.searchsorted(self.thresholds, threshold))]
        return row

    def best(self, subset: str | None = None) -> float:
        """The lowest threshold with the highest F1 of a subset, or with the highest mean F1. It may be infinite."""
        over = self.f1.mean(1) if subset is None else self.f1[:, self.subsets.index(subset)]
        return float(self.thresholds[int(over.argmax())])

    def summary(self, fixed: float = 0.5) -> Thresholds:
        """For a metrics file: F1 at ``fixed``, at GSM8K's best and at the oracle's threshold, and the curve."""
        chosen = {"fixed": fixed} | ({"chosen_on_gsm8k": self.best(CHOSEN_ON)} if CHOSEN_ON in self.subsets else {})
        grid = [place / _POINTS for place in range(_POINTS + 1)]
        return Thresholds(
            **{name: self._figures(threshold) for name, threshold in chosen.items()},
            oracle_upper_bound=self._figures(self.best()),
            curve=[[threshold, float(self.at(threshold).mean())] for threshold in grid],
        )

    def _figures(self, threshold: float) -> Threshold:
        f1 = self.at(threshold)
        return Threshold(
            threshold=threshold if np.isfinite(threshold) else None,
            mean_f1=float(f1.mean()),
            subsets=dict(zip(self.subsets, map(float, f1), strict=True)),
        )


def sweep(items: Sequence[ProcessBenchItem], scores: Sequence[Sequence[float] | None]) -> Sweep:
    """Evaluate every threshold for ``items`` with the ``scores`` of their steps (any scale, higher is better).

    Degenerate classes count as in the repaired preset. A step without a score (NaN) is never below a threshold. A
    solution without scores is missed at every threshold.
    """
    subsets = subsets_of(items)
    low, high = np.array([_interval(item, mine) for item, mine in zip(items, scores, strict=True)]).reshape(-1, 2).T
    finite = np.unique(np.concatenate([low, high]))
    thresholds = np.append(finite[np.isfinite(finite)], np.inf)
    begins, ends = np.searchsorted(thresholds, low, side="right"), np.searchsorted(thresholds, high, side="right")
    subset = np.array([subsets.index(item.subset) for item in items])
    wrong = np.array([item.label != NO_ERROR for item in items])
    accuracies = np.zeros((2, len(thresholds), len(subsets)))
    for kind, place in np.ndindex(2, len(subsets)):
        group = (subset == place) & (wrong == (kind == 0))
        counted = group & (begins <= ends)
        changes = np.zeros(len(thresholds) + 1)
        np.add.at(changes, begins[counted], 1)
        np.add.at(changes, ends[counted], -1)
        accuracies[kind, :, place] = 100 * np.rint(np.cumsum(changes[:-1])) / max(int(group.sum()), 1)
    return Sweep(subsets, thresholds, f1_of(accuracies))


def _interval(item: ProcessBenchItem, scores: Sequence[float] | None) -> tuple[float, float]:
    """The thresholds for which the prediction is the label: above the first value, up to the second."""
    if scores is None:
        return np.inf, -np.inf
    known = [np.inf if np.isnan(score) else float(score) for score in scores]
    if item.label == NO_ERROR:
        return -np.inf, min(known, default=np.inf)
    if item.label >= len(known):
        return np.inf, -np.inf
    return known[item.label], min(known[: item.label], default=np.inf)
