"""Paired comparisons between systems on the same problems, each described in one sentence.

A difference is clear if its interval excludes zero. Problems are resampled within each subset or set, or on PRMBench
within the strata of ``prmbench.by_problem``, and both systems use the same resamples. If both have several seeds, equal
seeds are paired. If only some systems have several, the others are assumed to vary as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks import prmbench, processbench
from pathfinder.benchmarks.bootstrap import Estimate, Indices, Spread, Statistic, estimate, replicate, sums
from pathfinder.benchmarks.readers import CORRECT, PRMBenchItem, ProcessBenchItem
from pathfinder.core.params import Report
from pathfinder.core.readings import are_comparable
from pathfinder.reporting.origins import from_files, made
from pathfinder.reporting.results import Score

Row = Mapping[str, Any]
_DIFFERENCE = "paired difference"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two systems on one benchmark, and the reading of each; without a difference, they answer different questions."""

    left: str
    right: str
    benchmark: str
    difference: Estimate | None
    n: int
    seeds: tuple[int, ...] = (1,)
    readings: tuple[str, str] = ("", "")

    @property
    def reading(self) -> str:
        """The reading of both sides, or the two readings in words."""
        return " against ".join(dict.fromkeys(filter(None, self.readings)))

    def __str__(self) -> str:
        found, pair, where = self.difference, f"{self.left} and {self.right}", f"on {self.benchmark}"
        by = f"by {self.reading}; " if self.reading else ""
        seeds = " and ".join(f"{count} seed{'s' * (count > 1)}" for count in dict.fromkeys(self.seeds))
        basis = f"({by}{self.n} problems; {seeds})."
        if found is None:
            return f"{pair} are not comparable {where}: they answer different questions {basis}"
        if not found.is_clear:
            gap = f"{found.value:+z.1f} [{found.low:z.1f}, {found.high:z.1f}]"
            return f"{pair} do not differ clearly {where}: the difference is {gap} {basis}"
        verb = "beats" if found.value > 0 else "trails"
        low, high = sorted((abs(found.low), abs(found.high)))
        gap = f"{abs(found.value):.1f} points [{low:.1f}, {high:.1f}]"
        return f"{self.left} {verb} {self.right} by {gap} {where} {basis}"


@dataclass(frozen=True, slots=True)
class Measured:
    """One system's statistic over the problems of a benchmark, and the files that it was measured from.

    ``keys`` names the items, ``strata`` the stratum of each problem; on PRMBench a problem may have several items.
    """

    keys: tuple[str, ...]
    strata: tuple[str, ...]
    statistic: Statistic
    files: tuple[str, ...] = ()


def on_processbench(items: Sequence[ProcessBenchItem], rows: Iterable[Row]) -> Measured:
    """Mean F1 from prediction rows, by the main reading, over the items that have a row."""
    predictions = {(row["subset"], row["id"]): row["prediction"] for row in rows}
    mine = [item for item in items if item.key in predictions]
    keys = tuple(f"{item.subset}/{item.id}" for item in mine)
    return Measured(keys, tuple(item.subset for item in mine), processbench.Table.of(mine, predictions).mean_f1)


def on_prmbench(items: Sequence[PRMBenchItem], rows: Iterable[Row]) -> Measured:
    """PRMScore from prediction rows, by the main reading and without the correct counterparts, as in the metric."""
    found = {row["idx"]: row for row in rows}
    mine = [item for item in items if item.classification != CORRECT and item.idx in found]
    labels = [prmbench.labels_of(item.idx, found[item.idx], item.classification) or [] for item in mine]
    pairs = zip(mine, labels, strict=True)
    by_item = (prmbench.step_counts(item, given[: len(item.steps)]) for item, given in pairs)
    counts, strata = prmbench.by_problem(mine, by_item)
    return Measured(tuple(item.idx for item in mine), strata, lambda taken: prmbench.score("", counts[taken].sum(-2)))


def on_search(rows: Sequence[Row], figure: str = "correct") -> Measured:
    """The mean over the sets of each set's mean ``figure``, in percent: to the last bit as ``accuracy.by_set``."""
    strata = tuple(str(row["set"]) for row in rows)
    values = np.array([float(row[figure]) for row in rows])
    names = list(dict.fromkeys(strata))
    groups = np.array([names.index(name) for name in strata], dtype=np.int64)

    def average(taken: Indices) -> npt.NDArray[np.float64]:
        found = 100 * sums(taken, groups, len(names), values) / sums(taken, groups, len(names))
        return np.asarray(found.mean(-1))

    return Measured(tuple(f"{row['set']}/{row['id']}" for row in rows), strata, average)


@dataclass(frozen=True, slots=True)
class System:
    """A system's replicates (float64, shape ``[seeds, 1 + samples]``) on the items ``keys`` of one benchmark.

    ``problems`` counts the items' problems. Controls that need no training have one row and no seed. ``files`` are what
    it was measured from, ``reading`` is the question that the figures answer.
    """

    keys: tuple[str, ...]
    seeds: tuple[int, ...]
    replicates: npt.NDArray[np.float64]
    problems: int
    files: tuple[str, ...] = ()
    reading: str = ""

    def level(self, report: Report, spread: Spread | None = None) -> Score:
        """The mean over seeds in percent, its interval clipped to 0 to 100; ``spread`` applies to a single seed."""
        between = spread if spread and len(self.seeds) == 1 else None
        found = estimate([self.replicates], report.confidence, between and between.of(1))
        how = f"mean over {len(self.seeds)} seeds" if len(self.seeds) > 1 else "statistic"
        own = from_files(how, self.files)
        ends = [own, between and between.variance]
        low, high = (made(how, end, ends) for end in (max(0.0, found.low), min(100.0, found.high)))
        return Score(made(how, found.value, [own]), low, high)


def gather(runs: Mapping[int, Measured], report: Report, is_trained: bool = True, reading: str = "") -> System | None:
    """Combine a system's runs by seed; runs without problems or on other problems than the first are left out."""
    found = [(seed, run) for seed, run in sorted(runs.items()) if run.keys]
    if not found:
        return None
    keys = found[0][1].keys
    same = {seed: run for seed, run in found if run.keys == keys}
    rows = [replicate(len(run.strata), run.statistic, report, run.strata) for run in same.values()]
    files = tuple(dict.fromkeys(file for run in same.values() for file in run.files))
    return System(keys, tuple(same) if is_trained else (), np.stack(rows), len(found[0][1].strata), files, reading)


def compare(
    systems: Mapping[str, System],
    pairs: Iterable[tuple[str, str]],
    benchmark: str,
    report: Report,
    spread: Spread | None = None,
) -> list[Comparison]:
    """Compare every pair whose sides were measured on the same problems; equal seeds are paired.

    Sides with different readings have no difference. The intervals are clipped to -100 to 100, because both sides are
    in percent.

    ``spread`` is the variance between seeds that a side with one seed is assumed to have.
    """
    found = []
    for left, right in pairs:
        if left not in systems or right not in systems or systems[left].keys != systems[right].keys:
            continue
        first, second = systems[left], systems[right]
        is_paired = first.seeds == second.seeds
        counts = tuple(len(side.seeds) for side in (first, second) if side.seeds)
        readings = (first.reading, second.reading)
        if not are_comparable(*readings):
            found.append(Comparison(left, right, benchmark, None, first.problems, counts, readings))
            continue
        parts = [first.replicates - second.replicates] if is_paired else [first.replicates, -second.replicates]
        between = spread if spread and 1 in counts else None
        difference = estimate(parts, report.confidence, between and between.of(*counts))
        sides = [from_files(_DIFFERENCE, first.files + second.files)]
        ends = [*sides, between and between.variance]
        low, high = (made(_DIFFERENCE, end, ends) for end in (max(-100.0, difference.low), min(100.0, difference.high)))
        known = Estimate(made(_DIFFERENCE, difference.value, sides), low, high, difference.p)
        found.append(Comparison(left, right, benchmark, known, first.problems, counts, readings))
    return found
