"""The answers of the experiment: each hypothesis as a paired difference, with an interval and a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from extras.experiment.figures import Judged, weights_at
from extras.experiment.plan import LOOKS, MAIN_SHARE, Cell
from ground.io import DataError, read_json
from pathfinder.benchmarks.bootstrap import Estimate, adjusted, estimate, resamples
from pathfinder.benchmarks.processbench import f1_of, subsets_of

Verdict = Literal["helps", "harms", "equivalent", "open", "too high"]
Reading = Literal["soundness", "quality", "definition"]
Figures = Mapping[str, Any]
Rows = npt.NDArray[np.float64]
Value = TypeVar("Value", float, Rows)
"""A figure or a difference on all items and on each resample, float64 (1 + resamples,), or one such row per seed."""
SMALLEST = 1.0
"""Points: a smaller difference does not matter."""
CEILING = 85.0
"""A mean figure above this leaves too little room for a verdict."""
EQUIVALENCE = 0.90
"""The interval of two one-sided tests at 5 %."""
_SAMPLES, _SEED = 1000, 42


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A difference between two variants by a reading; "definition" is the mean of F1 and PRMScore, each by its own."""

    name: str
    question: str
    left: str
    right: str
    reading: Reading


HYPOTHESES = (
    Hypothesis("H1", "do separate types help to find errors?", "full", "no_error_categories", "soundness"),
    Hypothesis("H2", "do error labels before correctness help to find errors?", "full", "plain_error", "soundness"),
    Hypothesis("H3", "does one model serve both definitions?", "full", "no_subtasks", "definition"),
    Hypothesis("H4", "do two passes help the reward?", "full", "autoregressive", "quality"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The estimate of a hypothesis in one setting, and its verdict."""

    hypothesis: Hypothesis
    base: str
    size: int
    seeds: int
    found: Estimate
    near: Estimate
    """With the interval of the test for equivalence."""
    spread: float
    """The standard deviation of the paired difference between seeds."""
    p: float
    """Adjusted over the hypotheses of the setting that are open (Holm), at the look that decides or of all seeds."""
    verdict: Verdict
    """The verdict of the look that decides, which is final; later looks have the open hypotheses."""
    needed: int
    """The result of ``seeds_needed`` at the level that Holm's method demands of the smallest p."""


def read_cells(folder: Path) -> dict[Cell, Figures]:
    """The finished cells below a folder. Raises ``DataError`` for a file that is not a cell."""
    found = {}
    for path in sorted(folder.rglob("*.json")):
        row = read_json(path)
        try:
            cell = Cell(**row["cell"])
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: not a cell of the experiment; remove it and run its block again") from error
        found[cell] = row
    return found


class Replicates:
    """F1 of any cell on the items and on each resample of the items, from the bits of its hits."""

    def __init__(self, items: Sequence[Judged]) -> None:
        rows = [j.item for j in items]
        subsets = subsets_of(rows)
        group = np.array([subsets.index(i.subset) + len(subsets) * (i.label < 0) for i in rows])
        strata = [f"{g}" for g in group]
        drawn = [np.arange(len(rows)), *resamples(len(rows), _SAMPLES, _SEED, strata)]
        weights = weights_at(items, MAIN_SHARE)
        times = np.stack([np.bincount(picked, minlength=len(rows)) for picked in drawn]) * weights
        members = np.stack([group == g for g in range(2 * len(subsets))], axis=1).astype(np.float64)
        self._times, self._members, self._of_group = times, members, times @ members
        self._count = len(rows)

    def f1(self, hits: str) -> Rows:
        """Mean F1 in percent, float64 (1 + resamples,), of a cell's ``hits``."""
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(hits), np.uint8), count=self._count)
        accuracies = 100 * (self._times @ (self._members * bits[:, None])) / self._of_group
        halves = accuracies.reshape(len(accuracies), 2, -1).swapaxes(0, 1)
        means: Rows = f1_of(halves).mean(-1)
        return means


def figure_of(figures: Figures, reading: str, f1: Callable[[Figures], Value]) -> Value:
    """The figure of a cell: F1 by a reading or, by definition, the mean of F1 and PRMScore.

    ``f1`` takes F1, or F1 and its replicates, from the figures of a reading. By definition, F1 is by soundness or, if
    the variant lacks it, by its first reading. PRMScore has no replicates.
    """
    read = figures["processbench"]
    asked = "soundness" if reading == "definition" else reading
    found = f1(read.get(asked, next(iter(read.values()))))
    if reading != "definition":
        return found
    rules = figures["prmbench"]
    score: float = rules.get("definition", next(iter(rules.values())))["PRMScore"]
    return (found + score) / 2


def answers(
    cells: Mapping[Cell, Figures],
    items: Sequence[Judged],
    looks: Mapping[int, float] = LOOKS,
    readings: Mapping[str, Reading] = MappingProxyType({}),
) -> list[Answer]:
    """The answer to each hypothesis in each setting (base and number of records) with at least two paired seeds.

    ``readings`` replaces the reading of hypotheses by name.
    """
    hypotheses = [replace(each, reading=readings.get(each.name, each.reading)) for each in HYPOTHESES]
    replicates, memo = Replicates(items), dict[tuple[Cell, str], Rows]()

    def value(cell: Cell, reading: str) -> Rows:
        if (cell, reading) not in memo:
            memo[cell, reading] = figure_of(cells[cell], reading, lambda read: replicates.f1(read["hits"]))
        return memo[cell, reading]

    out: list[Answer] = []
    for base, size in sorted({(cell.base, cell.size) for cell in cells}):
        here: list[tuple[Hypothesis, Rows]] = []
        for hypothesis in hypotheses:
            sides = [Cell(base, variant, size, 0) for variant in (hypothesis.left, hypothesis.right)]
            seeds = sorted(set.intersection(*({c.seed for c in cells if replace(c, seed=0) == side} for side in sides)))
            pairs = [[value(replace(side, seed=seed), hypothesis.reading) for side in sides] for seed in seeds]
            if len(pairs) > 1:
                here.append((hypothesis, np.stack(pairs)))
        out += _setting(base, size, here, looks)
    return out


def _setting(base: str, size: int, here: Sequence[tuple[Hypothesis, Rows]], looks: Mapping[int, float]) -> list[Answer]:
    """The answers of a setting from the figures of both sides, each float64 (seeds, 2, 1 + resamples)."""
    differences = [pairs[:, 0] - pairs[:, 1] for _, pairs in here]
    left, ps = [*range(len(here))], dict[int, float]()
    verdicts: list[Verdict] = ["open" for _ in here]
    for look, level in sorted(looks.items()):
        if min((len(differences[n]) for n in left), default=0) < look:
            break
        seen = [differences[n][:look] for n in left]
        for n, rows, p in zip(left, seen, _adjusted(seen), strict=True):
            is_high = here[n][1][:look, :, 0].mean(0).max() > CEILING
            found, near = estimate([rows], 0.95), estimate([rows], EQUIVALENCE)
            verdicts[n], ps[n] = "too high" if is_high else verdict_of(found, near, p, level), p
        left = [n for n in left if verdicts[n] == "open"]
    ps.update(zip(left, _adjusted([differences[n] for n in left]), strict=True))
    out = []
    for n, ((hypothesis, _), rows) in enumerate(zip(here, differences, strict=True)):
        found, near = estimate([rows], 0.95), estimate([rows], EQUIVALENCE)
        spread, of_items = float(rows[:, 0].std(ddof=1)), float(rows.mean(0)[1:].std())
        needed = seeds_needed(found.value, spread, of_items, max(looks.values()) / max(1, len(left)))
        out.append(Answer(hypothesis, base, size, len(rows), found, near, spread, ps[n], verdicts[n], needed))
    return out


def _adjusted(rows: Sequence[Rows]) -> list[float]:
    return adjusted([estimate([each], 0.95).p for each in rows])


def verdict_of(found: Estimate, near: Estimate, p: float, level: float) -> Verdict:
    """The verdict at a look with ``level``: the difference is clear, negligible, or still open."""
    if p < level and abs(found.value) >= SMALLEST:
        return "helps" if found.value > 0 else "harms"
    return "equivalent" if near.low > -SMALLEST and near.high < SMALLEST else "open"


def seeds_needed(value: float, spread: float, of_items: float, level: float) -> int:
    """Seeds that decide if the difference stays ``value``: an equivalence interval within ``SMALLEST``, or ``level``.

    0 means that no number of seeds decides, because too few problems leave the interval too wide.
    """
    within = abs(value) < SMALLEST
    room = SMALLEST - abs(value) if within else abs(value)
    left = (room / float(ndtri((1 + EQUIVALENCE) / 2 if within else 1 - level / 2))) ** 2 - of_items**2
    return math.ceil(spread**2 / left) if left > 0 else 0


def rows_of(found: Iterable[Answer]) -> list[tuple[str, ...]]:
    """The rows of the table of answers."""
    return [
        (
            f"{a.hypothesis.name}: {a.hypothesis.left} - {a.hypothesis.right}",
            a.hypothesis.reading,
            f"{a.base}, {a.size:,}",
            f"{a.seeds}",
            f"{a.found.value:+.2f} [{a.found.low:.2f}, {a.found.high:.2f}]",
            f"[{a.near.low:.2f}, {a.near.high:.2f}]",
            f"{a.spread:.2f}",
            f"{a.p:.3f}",
            a.verdict + (f" ({a.needed or 'no number of'} seeds)" if a.verdict == "open" else ""),
        )
        for a in found
    ]


def as_json(answer: Answer) -> dict[str, Any]:
    """An answer as ``infra/experiment/answers.json`` has it, for the report: figures in points to four decimals."""
    hypothesis, found = answer.hypothesis, answer.found
    return {
        "hypothesis": hypothesis.name,
        "left": hypothesis.left,
        "right": hypothesis.right,
        "reading": hypothesis.reading,
        "base": answer.base,
        "records": answer.size,
        "seeds": answer.seeds,
        "difference": {name: round(float(getattr(found, name)), 4) for name in ("value", "low", "high")},
        "verdict": answer.verdict,
    }


HEADS = ("difference", "reading", "base, records", "seeds", "points, 95 %", "90 %", "SD", "p", "verdict")
