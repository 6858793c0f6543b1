"""ProcessBench's metric: the first wrong step, right or not; F1 of the two accuracies.

Accuracy on solutions with an error and on correct ones, their harmonic mean a subset, the plain mean over subsets, all
in percent (paper section 4.1; published ``run_eval_pathfinder_prm.py``). Degenerate cases are defined here: an
accuracy over no solution is 0, and the F1 of two zeros is 0. Preset ``official`` is the published arithmetic, whose
NaN in those cases is ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks.bootstrap import interval
from pathfinder.benchmarks.grading import GradingPreset
from pathfinder.benchmarks.readers import SUBSETS, ProcessBenchItem
from pathfinder.core.params import Report

Key = tuple[str, str]
"""Subset and id of an item."""
NO_ERROR = -1


@dataclass(frozen=True, slots=True)
class Table:
    """Items and predictions as columns, one row an item: subset's place in ``subsets``, error or not, hit or not."""

    subsets: tuple[str, ...]
    subset: npt.NDArray[np.int64]
    wrong: npt.NDArray[np.bool_]
    hit: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, items: Sequence[ProcessBenchItem], predictions: Mapping[Key, int | None]) -> Table:
        """An item without a prediction, or with ``None``, is missed."""
        subsets = tuple(name for name in SUBSETS if any(item.subset == name for item in items))
        return cls(
            subsets,
            np.array([subsets.index(item.subset) for item in items], dtype=np.int64),
            np.array([item.label != NO_ERROR for item in items], dtype=np.bool_),
            np.array([predictions.get((item.subset, item.id)) == item.label for item in items], dtype=np.bool_),
        )

    def accuracies(self, rows: npt.NDArray[np.int64] | slice = slice(None)) -> npt.NDArray[np.float64]:
        """Shape (2, subsets), percent: accuracy with an error, accuracy without; NaN over no item."""
        subset, wrong, hit = self.subset[rows], self.wrong[rows], self.hit[rows]
        groups = subset + len(self.subsets) * ~wrong
        count = np.bincount(groups, minlength=2 * len(self.subsets))
        hits = np.bincount(groups, weights=hit, minlength=2 * len(self.subsets))
        with np.errstate(invalid="ignore"):
            return np.asarray(hits / count * 100, dtype=np.float64).reshape(2, -1)

    def mean_f1(self, rows: npt.NDArray[np.int64]) -> float:
        """Mean F1 over the subsets, percent, degenerate cases 0."""
        return float(_f1(np.nan_to_num(self.accuracies(rows))).mean())


def evaluate(
    items: Sequence[ProcessBenchItem], predictions: Mapping[Key, int | None], preset: GradingPreset = "repaired"
) -> dict[str, Any]:
    """``{"subsets": {name: {error_acc, correct_acc, f1, n_error, n_correct}}, "mean_f1"}`` in unrounded percent."""
    table = Table.of(items, predictions)
    accuracies = table.accuracies()
    if preset == "repaired":
        accuracies = np.nan_to_num(accuracies)
        f1 = _f1(accuracies)
    else:
        with np.errstate(invalid="ignore"):
            f1 = 2 * accuracies[0] * accuracies[1] / (accuracies[0] + accuracies[1])
    subsets = {
        name: {
            "error_acc": _number(accuracies[0, i]),
            "correct_acc": _number(accuracies[1, i]),
            "f1": _number(f1[i]),
            "n_error": int((table.wrong & (table.subset == i)).sum()),
            "n_correct": int((~table.wrong & (table.subset == i)).sum()),
        }
        for i, name in enumerate(table.subsets)
    }
    return {"subsets": subsets, "mean_f1": _number(f1.mean())}


def with_interval(
    items: Sequence[ProcessBenchItem], predictions: Mapping[Key, int | None], report: Report
) -> dict[str, Any]:
    """``evaluate`` (repaired) and the bootstrap ``interval`` of the mean F1, by item within each subset."""
    table = Table.of(items, predictions)
    bounds = interval(
        len(items),
        table.mean_f1,
        report.bootstrap_samples,
        report.confidence,
        report.seed,
        strata=[item.subset for item in items],
    )
    return evaluate(items, predictions) | {"interval": list(bounds)}


def by_generator(items: Sequence[ProcessBenchItem], predictions: Mapping[Key, int | None]) -> dict[str, Any]:
    """The two accuracies and F1 for the solutions of each model that wrote some (repaired preset, percent)."""
    out: dict[str, Any] = {}
    for name in sorted({item.generator for item in items}):
        mine = [item for item in items if item.generator == name]
        hits = {
            wrong: [predictions.get((i.subset, i.id)) == i.label for i in mine if (i.label != NO_ERROR) == wrong]
            for wrong in (True, False)
        }
        error, correct = (100 * sum(h) / len(h) if h else 0.0 for h in (hits[True], hits[False]))
        f1 = 2 * error * correct / (error + correct) if error + correct else 0.0
        out[name] = {"error_acc": error, "correct_acc": correct, "f1": f1, "n": len(mine)}
    return out


def first_error(verdicts: Sequence[bool]) -> int:
    """The index of the first step whose verdict is false (incorrect), or -1."""
    return next((place for place, correct in enumerate(verdicts) if not correct), NO_ERROR)


def trivial_predictors(items: Sequence[ProcessBenchItem], report: Report) -> dict[str, Any]:
    """What answers without a model score: ``chance`` draws a place or none alike; ``majority`` says "no error";
    ``first_step`` blames the first step. Each with its interval."""
    rng = np.random.Generator(np.random.Philox(report.seed))
    draws = {
        "chance": {item.key: int(rng.integers(NO_ERROR, len(item.steps))) for item in items},
        "majority": {item.key: NO_ERROR for item in items},
        "first_step": {item.key: 0 for item in items},
    }
    return {name: with_interval(items, drawn, report) for name, drawn in draws.items()}


def _f1(accuracies: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    total = accuracies.sum(0)
    f1: npt.NDArray[np.float64] = np.zeros_like(total)
    np.divide(2 * accuracies[0] * accuracies[1], total, out=f1, where=total > 0)
    return f1


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
