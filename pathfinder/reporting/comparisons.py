"""Paired comparisons between systems on the same problems, each said in one plain sentence.

A difference counts as clear when its interval leaves zero out. Resampling is by problem within each subset, set or
class, and both systems see the same resamples; where each was trained from several seeds, equal seeds are paired, and
where only some were, the others are taken to vary as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks import prmbench, processbench
from pathfinder.benchmarks.bootstrap import Estimate, Indices, Spread, Statistic, estimate, pooled, replicate
from pathfinder.benchmarks.readers import CORRECT, PRMBenchItem, ProcessBenchItem
from pathfinder.core.params import Report

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two systems on one benchmark."""

    left: str
    right: str
    benchmark: str
    difference: Estimate
    n: int
    seeds: tuple[int, ...] = (1,)

    def __str__(self) -> str:
        found = self.difference
        over = f"over {self.n} problems; {said_seeds(self.seeds)}."
        if not found.is_clear:
            return (
                f"{self.left} and {self.right} cannot be told apart on {self.benchmark}: the difference is "
                f"{found.value:+.1f} [{found.low:.1f}, {found.high:.1f}] {over}"
            )
        verb = "beats" if found.value > 0 else "falls behind"
        low, high = sorted((abs(found.low), abs(found.high)))
        by = f"{abs(found.value):.1f} points [{low:.1f}, {high:.1f}]"
        return f"{self.left} {verb} {self.right} by {by} on {self.benchmark} {over}"


def said_seeds(counts: Iterable[int]) -> str:
    """How many trainings a figure stands on: of each side, where they differ."""
    different = sorted(set(counts), reverse=True)
    return " and ".join(map(str, different)) + (" seed" if different == [1] else " seeds")


@dataclass(frozen=True, slots=True)
class Measured:
    """One system's statistic over the problems of a benchmark."""

    keys: tuple[str, ...]
    strata: tuple[str, ...]
    statistic: Statistic


def on_processbench(items: Sequence[ProcessBenchItem], rows: Iterable[Row]) -> Measured:
    """Mean F1 from prediction rows, rule "both"."""
    predictions = {(row["subset"], row["id"]): row["prediction"] for row in rows}
    table = processbench.Table.of(items, predictions)
    keys = tuple(f"{item.subset}/{item.id}" for item in items)
    return Measured(keys, tuple(item.subset for item in items), table.mean_f1)


def on_prmbench(items: Sequence[PRMBenchItem], rows: Iterable[Row]) -> Measured:
    """PRMScore from prediction rows, rule "both"; the correct counterparts are left out, as in the metric."""
    mine = [item for item in items if item.classification != CORRECT]
    found = {row["idx"]: row for row in rows}
    labels = [prmbench.labels_of(i.idx, found.get(i.idx, {"validity": False}), i.classification) for i in mine]
    counts = np.stack(
        [prmbench.step_counts(i, (said or [])[: len(i.steps)]) for i, said in zip(mine, labels, strict=True)]
    )

    def overall(taken: Indices) -> float:
        return float(prmbench.scores({"counterfactual": counts[taken].sum(0)})["overall"])

    return Measured(tuple(item.idx for item in mine), tuple(item.classification for item in mine), overall)


def on_search(rows: Sequence[Row], figure: str) -> Measured:
    """Plain mean over the sets of a figure that each row holds."""
    strata = tuple(str(row["set"]) for row in rows)
    values = np.array([float(row[figure]) for row in rows])
    names = sorted(set(strata))
    groups = np.array([names.index(name) for name in strata], dtype=np.int64)

    def average(taken: Indices) -> float:
        sums = np.bincount(groups[taken], weights=values[taken], minlength=len(names))
        means: npt.NDArray[np.float64] = sums / np.bincount(groups[taken], minlength=len(names))
        return 100 * float(means.mean())

    return Measured(tuple(f"{row['set']}/{row['id']}" for row in rows), strata, average)


@dataclass(frozen=True, slots=True)
class System:
    """A system's replicates on one benchmark: a row for each training seed, all on the same problems.

    What was never trained (a random pick, the policy alone) has one row and no seed.
    """

    keys: tuple[str, ...]
    seeds: tuple[int, ...]
    replicates: npt.NDArray[np.float64]

    def level(self, report: Report, spread: Spread | None = None) -> Estimate:
        """The mean over seeds in percent; its interval ends where percent do. One seed is given ``spread``."""
        between = spread.of(1) if spread and len(self.seeds) == 1 else None
        found = estimate([self.replicates], report.confidence, between)
        return replace(found, low=max(0.0, found.low), high=min(100.0, found.high))


def spread_of(systems: Iterable[System]) -> Spread | None:
    """What figures vary by between seeds, over all systems of one benchmark that have several."""
    return pooled(system.replicates for system in systems if system.seeds)


def gather(runs: Mapping[int, Measured], report: Report, is_trained: bool = True) -> System | None:
    """One system's trainings by seed; those on other problems than the first are left out. None without any."""
    if not runs:
        return None
    keys = runs[min(runs)].keys
    same = {seed: measured for seed, measured in sorted(runs.items()) if measured.keys == keys}
    rows = [
        replicate(len(keys), one.statistic, report.bootstrap_samples, report.confidence, report.seed, one.strata)
        for one in same.values()
    ]
    return System(keys, tuple(same) if is_trained else (), np.stack(rows))


def compare(
    systems: Mapping[str, System],
    pairs: Iterable[tuple[str, str]],
    benchmark: str,
    report: Report,
    spread: Spread | None = None,
) -> list[Comparison]:
    """Every pair of which both sides were measured on the same problems; equal seeds are paired.

    ``spread`` is what a side with one seed is taken to vary by.
    """
    found = []
    for left, right in pairs:
        if left not in systems or right not in systems or systems[left].keys != systems[right].keys:
            continue
        one, other = systems[left], systems[right]
        is_paired = one.seeds == other.seeds
        counts = tuple(len(side.seeds) for side in (one, other) if side.seeds)
        parts = [one.replicates - other.replicates] if is_paired else [one.replicates, -other.replicates]
        between = spread.of(*counts) if spread and 1 in counts else None
        difference = estimate(parts, report.confidence, between)
        found.append(Comparison(left, right, benchmark, difference, len(one.keys), counts))
    return found
