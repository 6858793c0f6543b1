"""ProcessBench's metric: is the first incorrect step found? The score is the F1 of two accuracies.

The F1 is the harmonic mean of the accuracies on solutions with and without an error, per subset; the mean over the
subsets is plain. All numbers are percent (paper section 4.1; published ``run_eval_pathfinder_prm.py``). Degenerate
cases are defined: an accuracy over no solution is 0, and the F1 of two zeros is 0. Preset ``official`` is the published
arithmetic, with ``None`` for its NaN in those cases.

The benchmark asks for the earliest step with an error (arXiv 2412.06559), so it reads soundness. A correct step that
leads nowhere has no error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks.bootstrap import interval, sums
from pathfinder.benchmarks.grading import GradingPreset
from pathfinder.benchmarks.readers import SUBSETS, ProcessBenchItem
from pathfinder.core.params import Report

Key = tuple[str, str]
"""Subset and id of an item."""
NO_ERROR = -1
READING: Final = "soundness"
"""The reading that the benchmark asks for, declared before any figure was seen."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """Items and predictions as columns, one row per item; ``subset`` is its index in ``subsets``."""

    subsets: tuple[str, ...]
    subset: npt.NDArray[np.int64]
    wrong: npt.NDArray[np.bool_]
    hit: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, items: Sequence[ProcessBenchItem], predictions: Mapping[Key, int | None]) -> Table:
        """An item without a prediction, or with ``None``, is missed."""
        subsets = subsets_of(items)
        return cls(
            subsets,
            np.array([subsets.index(item.subset) for item in items], dtype=np.int64),
            np.array([item.label != NO_ERROR for item in items], dtype=np.bool_),
            np.array([predictions.get(item.key) == item.label for item in items], dtype=np.bool_),
        )

    def accuracies(self, rows: npt.NDArray[np.int64] | None = None) -> Floats:
        """Shape (2, …, subsets), percent, of ``rows`` (…, n): accuracy with an error, accuracy without.

        NaN over no item. Without ``rows``, all items count.
        """
        rows, groups = np.arange(len(self.hit)) if rows is None else rows, 2 * len(self.subsets)
        group = self.subset + len(self.subsets) * ~self.wrong
        with np.errstate(invalid="ignore"):
            share = sums(rows, group, groups, self.hit.astype(np.float64)) / sums(rows, group, groups) * 100
        return np.stack(np.split(share, 2, axis=-1))

    def mean_f1(self, rows: npt.NDArray[np.int64]) -> Floats:
        """Mean F1 over the subsets, percent, of each row of ``rows`` (…, n); degenerate cases count as 0."""
        means: Floats = f1_of(np.nan_to_num(self.accuracies(rows))).mean(-1)
        return means


def subsets_of(items: Sequence[ProcessBenchItem]) -> tuple[str, ...]:
    """The subsets of the items, in the benchmark's order."""
    return tuple(name for name in SUBSETS if any(item.subset == name for item in items))


def f1_of(accuracies: Floats) -> Floats:
    """F1 (…) of accuracies (2, …) in percent; the F1 of two zeros is 0."""
    total = accuracies.sum(0)
    f1: Floats = np.zeros_like(total)
    np.divide(2 * accuracies[0] * accuracies[1], total, out=f1, where=total > 0)
    return f1


def evaluate(
    items: Sequence[ProcessBenchItem], predictions: Mapping[Key, int | None], preset: GradingPreset = "repaired"
) -> dict[str, Any]:
    """``{"subsets": {name: {error_acc, correct_acc, f1, n_error, n_correct}}, "mean_f1"}`` in unrounded percent."""
    table = Table.of(items, predictions)
    accuracies = table.accuracies()
    if preset == "repaired":
        accuracies = np.nan_to_num(accuracies)
        f1 = f1_of(accuracies)
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
    bounds = interval(len(items), table.mean_f1, report, [item.subset for item in items])
    return evaluate(items, predictions) | {"interval": bounds}


def by_generator(items: Sequence[ProcessBenchItem], predictions: Mapping[Key, int | None]) -> dict[str, Any]:
    """The two accuracies and F1 (repaired, percent) on the solutions of each model."""
    out: dict[str, Any] = {}
    for name in sorted({item.generator for item in items}):
        mine = [item for item in items if item.generator == name]
        hits: dict[bool, list[bool]] = {True: [], False: []}
        for item in mine:
            hits[item.label != NO_ERROR].append(predictions.get(item.key) == item.label)
        error, correct = (100 * sum(found) / len(found) if found else 0.0 for found in hits.values())
        f1 = 2 * error * correct / (error + correct) if error + correct else 0.0
        out[name] = {"error_acc": error, "correct_acc": correct, "f1": f1, "n": len(mine)}
    return out


def first_error(verdicts: Sequence[bool]) -> int:
    """The index of the first step whose verdict is false (incorrect), or -1."""
    return next((place for place, correct in enumerate(verdicts) if not correct), NO_ERROR)


def trivial_predictors(items: Sequence[ProcessBenchItem], report: Report) -> dict[str, Any]:
    """The figures of predictors without a model, each with its interval.

    ``chance`` draws uniformly from the steps and "no error". ``majority`` always predicts no error, ``first_step`` the
    first step.
    """
    rng = np.random.Generator(np.random.Philox(report.seed))
    predictions = {
        "chance": {item.key: int(rng.integers(NO_ERROR, len(item.steps))) for item in items},
        "majority": {item.key: NO_ERROR for item in items},
        "first_step": {item.key: 0 for item in items},
    }
    return {name: with_interval(items, predicted, report) for name, predicted in predictions.items()}


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
