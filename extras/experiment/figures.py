"""Figures of one cell: F1 at shares of not-optimal steps, with thresholds that a dev set chose, and PRMScore.

A prediction for a solution with an error depends only on the steps up to the first one, so later steps are not scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from extras.experiment.plan import SHARES
from ground.io import DataError
from pathfinder.benchmarks import prmbench
from pathfinder.benchmarks.processbench import Table, f1_of, first_error
from pathfinder.benchmarks.readers import PRMBenchItem, ProcessBenchItem, read_processbench
from pathfinder.benchmarks.thresholds import Sweep, sweep
from pathfinder.core.readings import DEFINITION
from pathfinder.core.steps import Solution, StepScore, Verdicts, by_reading
from world.oracle import assess_to_error
from world.story import read_story

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """An item of ProcessBench with the truth about its steps up to the first error."""

    item: ProcessBenchItem
    correct: int
    """The number of correct steps before the error."""
    idle: frozenset[int]
    """The places of the steps that are correct but not optimal."""
    kind: str = ""
    """The kind of the error, if there is one."""

    @property
    def solution(self) -> Solution:
        """The steps that decide the prediction."""
        shown = self.correct + bool(self.kind)
        return Solution("/".join(self.item.key), self.item.problem, self.item.steps[:shown])


def judge(item: ProcessBenchItem) -> Judged:
    """The truth about an item by the oracle; raises ``DataError`` if its problem is not a story of the world."""
    verdicts = assess_to_error(read_story(item.problem), item.steps)
    correct = item.label if item.label >= 0 else len(item.steps)
    idle = frozenset(place for place, v in enumerate(verdicts[:correct]) if v is not None and not v.rating)
    last = verdicts[-1]
    return Judged(item, correct, idle, last.faults[0] if item.label >= 0 and last is not None else "")


def read_judged(folder: Path) -> list[Judged]:
    """The items of a ProcessBench folder with their truth."""
    return [judge(item) for item in read_processbench(folder).items]


def weights_at(items: Sequence[Judged], percent: float) -> Weights:
    """Weights of the items, float64 (items,), with which ``percent`` of all correct steps are not optimal.

    Items with such a step have one weight, the other items weigh 1. The items keep their solutions and predictions.
    Raises ``DataError`` if no weight gives the share.
    """
    has = np.array([bool(judged.idle) for judged in items])
    idle, correct = (np.array([len(j.idle) for j in items]), np.array([j.correct for j in items]))
    share = percent / 100
    excess = idle.sum() - share * correct[has].sum()
    if excess <= 0:
        raise DataError(f"no weighting of the items makes {percent:g} % of the correct steps not optimal; ask for less")
    return np.where(has, share * correct[~has].sum() / excess, 1.0)


def weighted_f1(table: Table, weights: Weights) -> float:
    """Mean F1 over the subsets in percent, with a weight for each item."""
    size = len(table.subsets)
    groups = table.subset + size * ~table.wrong
    count = np.bincount(groups, weights=weights, minlength=2 * size)
    hits = np.bincount(groups, weights=weights * table.hit, minlength=2 * size)
    accuracies = 100 * np.divide(hits, count, out=np.zeros_like(hits), where=count > 0).reshape(2, -1)
    return float(f1_of(accuracies).mean())


def table_at(items: Sequence[Judged], values: Sequence[Sequence[float]], threshold: float) -> Table:
    """Hits and misses of the items if a step with a value below ``threshold`` is an error."""
    found = {j.item.key: first_error([v >= threshold for v in mine]) for j, mine in zip(items, values, strict=True)}
    return Table.of([judged.item for judged in items], found)


def best_f1(items: Sequence[Judged], scores: Sequence[Sequence[StepScore]], reading: str) -> float:
    """The highest mean F1 of any threshold, percent."""
    return float(_swept(items, scores, reading).f1.mean(1).max())


def threshold_of(items: Sequence[Judged], scores: Sequence[Sequence[StepScore]], reading: str) -> float:
    """The threshold with the highest mean F1; 1 if no step should be an error."""
    best = _swept(items, scores, reading).best()
    return best if np.isfinite(best) else 1.0


def with_idle_errors(items: Sequence[Judged]) -> list[Judged]:
    """The items as PRMBench labels them: a step that is not optimal is an error."""
    labels = [min(judged.idle, default=judged.item.label) for judged in items]
    return [replace(j, item=replace(j.item, label=label)) for j, label in zip(items, labels, strict=True)]


def _swept(items: Sequence[Judged], scores: Sequence[Sequence[StepScore]], reading: str) -> Sweep:
    return sweep([j.item for j in items], [[step.read(reading) for step in steps] for steps in scores])


def by_reading_of(
    test: Sequence[Judged], test_scores: Sequence[Sequence[StepScore]], reading: str, threshold: float
) -> dict[str, Any]:
    """The figures of one reading on the ProcessBench-like set, in percent. ``hits`` is a hexadecimal string of bits."""
    table = table_at(test, [[score.read(reading) for score in steps] for steps in test_scores], threshold)
    return {
        "threshold": threshold,
        "f1": {str(share): weighted_f1(table, weights_at(test, share)) for share in SHARES},
        "hits": np.packbits(table.hit).tobytes().hex(),
    }


def prmbench_of(
    items: Sequence[PRMBenchItem], scores: Sequence[Sequence[StepScore]], thresholds: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """PRMScore and the categories in percent, by each reading and, with both, by the benchmark's definition."""

    def verdicts(steps: Sequence[StepScore], rule: str) -> Verdicts:
        if rule != DEFINITION:
            return by_reading(steps, rule, thresholds[rule])
        sound, useful = (by_reading(steps, each, thresholds[each]).correct for each in ("soundness", "quality"))
        return Verdicts(sound, [not each for each in useful])

    found = {}
    for rule in (*thresholds, *([DEFINITION] if len(thresholds) > 1 else [])):
        labels = {
            item.idx: prmbench.decisive(verdicts(steps, rule), item.classification)
            for item, steps in zip(items, scores, strict=True)
        }
        figures = prmbench.evaluate(items, labels)
        found[rule] = {"PRMScore": figures["overall"], **figures["categories"]}
    return found
