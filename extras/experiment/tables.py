"""Tables of the blocks around the main comparison: learning rates, data (H5), and wrong labels (docs/experiment.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median, stdev

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
"""Records of ``full`` whose figure ``no_subtasks`` is to reach."""
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


def curve_rows(cells: Cells) -> tuple[list[tuple[str, ...]], list[str]]:
    """Rows with ``CURVES``, mean and standard deviation by definition; and for each base model the answer to H5."""
    rows, said = list[tuple[str, ...]](), list[str]()
    for base in sorted({cell.base for cell in cells}):
        sizes, curves = _curves({cell: figures for cell, figures in cells.items() if cell.base == base})
        if len(curves) < 2 or REFERENCE not in sizes[1:]:
            continue
        for size in sizes:
            shown = [[both[variant][size] for both in curves] for variant in _CURVED]
            means = [f"{fmean(each):.1f} ({stdev(each):.1f})" for each in shown]
            rows.append((base, f"{size:,}", *means, f"{len(curves)}"))
        needed = np.array([records_needed(both["no_subtasks"], both["full"][REFERENCE]) for both in curves])
        drawn = np.random.default_rng(_SEED).choice(needed, (_SAMPLES, len(needed)))
        low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975), method="nearest")
        verdict = "save data" if low > REFERENCE else "cost data" if high < REFERENCE else "open"
        said.append(f"H5 on {base}: {median(needed.tolist()):,.0f} records [{low:,.0f}, {high:,.0f}]: {verdict}")
    return rows, said


def _curves(cells: Cells) -> tuple[list[int], list[dict[str, dict[int, float]]]]:
    """The sizes, and for each seed that has all of them both variants' figures by size."""
    sizes = sorted({cell.size for cell in cells})
    by_seed: dict[int, dict[str, dict[int, float]]] = {}
    for cell, figures in cells.items():
        if cell.variant in _CURVED:
            both = by_seed.setdefault(cell.seed, {variant: {} for variant in _CURVED})
            both[cell.variant][cell.size] = figure_of(figures, "definition", _f1)
    return sizes, [both for both in by_seed.values() if all(sorted(curve) == sizes for curve in both.values())]


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
