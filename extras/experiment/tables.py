"""Tables of the blocks around the main comparison: learning rates, data (H5), and wrong labels (docs/experiment.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

import numpy as np

from extras.experiment.answers import Figures, Replicates, figure_of
from extras.experiment.figures import Judged
from extras.experiment.plan import MAIN_SHARE, Cell
from pathfinder.benchmarks.bootstrap import estimate
from pathfinder.core.prompts import VARIANTS

Cells = Mapping[Cell, Figures]
RATES = ("variant", "learning rate", "F1 on the dev set", "cells")
CURVES = ("base", "records", "full", "no_subtasks", "seeds")
NOISE = ("flips", "true", "estimated", "uncorrected F1", "by the estimate", "gain", "by the truth", "gain")
REFERENCE = 500
"""The number of records of ``full`` whose figure ``no_subtasks`` must reach."""
_CURVED = ("full", "no_subtasks")
_SAMPLES, _SEED = 2000, 42


def rate_rows(blocks: Sequence[tuple[Mapping[str, float], Cells]]) -> list[tuple[str, ...]]:
    """Rows with ``RATES``, from the cells that all blocks have, which differ in their rates.

    The F1 is by soundness, or else by quality.
    """
    rows: list[tuple[str, ...]] = []
    shared = set[Cell].intersection(*({*cells} for _, cells in blocks)) if blocks else set[Cell]()
    for variant in VARIANTS:
        for rates, cells in blocks:
            read = [cells[cell]["dev"] for cell in shared if cell.variant == variant]
            if read:
                mean = fmean(figures.get("soundness", figures.get("quality")) for figures in read)
                rows.append((variant, f"{rates[variant]:g}", f"{mean:.1f}", f"{len(read)}"))
    return rows


def records_needed(curve: Mapping[int, float], figure: float) -> float:
    """The records with which a curve first reaches a figure, linear in their logarithm; infinite if it does not.

    A curve that begins above the figure gives its smallest number.
    """
    sizes = sorted(curve)
    if curve[sizes[0]] >= figure:
        return float(sizes[0])
    for low, high in pairwise(sizes):
        if curve[high] >= figure:
            share = (figure - curve[low]) / (curve[high] - curve[low])
            return float(low * (high / low) ** share)
    return float("inf")


def curve_rows(cells: Cells, sizes: Sequence[int]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Rows with ``CURVES``, mean and standard deviation by definition; and for each base model the answer to H5.

    ``sizes`` are the plan's numbers of records, in ascending order. Only seeds that have every size count.
    """
    rows, said = list[tuple[str, ...]](), list[str]()
    for base in sorted({cell.base for cell in cells}):
        full, other = (_curves(cells, base, variant, sizes) for variant in _CURVED)
        seeds = sorted(full.keys() & other.keys())
        if len(seeds) < 2:
            continue
        both = [np.array([curves[seed] for seed in seeds]) for curves in (full, other)]
        for place, size in enumerate(sizes):
            means = [f"{each[:, place].mean():.1f} ({each[:, place].std(ddof=1):.1f})" for each in both]
            rows.append((base, f"{size:,}", *means, f"{len(seeds)}"))
        wanted, curve = both[0][:, sizes.index(REFERENCE)], both[1]
        drawn = np.random.default_rng(_SEED).integers(len(seeds), size=(_SAMPLES, len(seeds)))
        needed, *others = (
            records_needed(dict(zip(sizes, curve[picked].mean(0), strict=True)), wanted[picked].mean())
            for picked in (np.arange(len(seeds)), *drawn)
        )
        low, high = np.quantile(others, (0.025, 0.975), method="nearest")
        verdict = "save data" if low > REFERENCE else "cost data" if high < REFERENCE else "open"
        said.append(f"H5 on {base}: {needed:,.0f} records [{low:,.0f}, {high:,.0f}]: {verdict}")
    return rows, said


def _curves(cells: Cells, base: str, variant: str, sizes: Sequence[int]) -> dict[int, list[float]]:
    """The figures by definition at all sizes, for each seed that has them."""
    found: dict[int, dict[int, float]] = {}
    for cell, figures in cells.items():
        if (cell.base, cell.variant) == (base, variant):
            found.setdefault(cell.seed, {})[cell.size] = figure_of(figures, "definition", _f1)
    return {seed: [curve[size] for size in sizes] for seed, curve in found.items() if {*sizes} <= curve.keys()}


def _f1(read: Figures) -> float:
    return float(read["f1"][str(MAIN_SHARE)])


def noise_rows(levels: Mapping[str, Mapping[str, Cells]], items: Sequence[Judged]) -> list[tuple[str, ...]]:
    """Rows with ``NOISE``, from the cells of each level without correction and by the estimated and the true shares.

    Each level has cells by ``Block.correction``. A gain is the difference from no correction, paired by seed, in points
    with a 95 % interval.
    """
    replicates, rows = Replicates(items), list[tuple[str, ...]]()
    for level, blocks in levels.items():
        shared = sorted(set.intersection(*map(set, blocks.values())), key=lambda cell: cell.seed)
        if len(shared) < 2:
            continue
        notes = [blocks["none"][cell]["noise"] for cell in shared]
        row = [", ".join(f"{fmean(n[name][i] for n in notes):.3f}" for i in (0, 1)) for name in ("true", "estimated")]
        found = {
            name: np.stack([replicates.f1(cells[cell]["processbench"]["soundness"]["hits"]) for cell in shared])
            for name, cells in blocks.items()
        }
        row.append(f"{found['none'][:, 0].mean():.1f}")
        for correction in ("estimated", "true"):
            gain = estimate([found[correction] - found["none"]], 0.95)
            row.append(f"{found[correction][:, 0].mean():.1f}")
            row.append(f"{gain.value:+.1f} [{gain.low:.1f}, {gain.high:.1f}], p {gain.p:.3f}")
        rows.append((level, *row))
    return rows
