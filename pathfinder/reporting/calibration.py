"""How well scores rank steps, and how calibrated they are, measured on the benchmarks' gold labels.

Each score is read as the benchmark asks: soundness, and quality in PRMBench's classes about redundancy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks.prmbench import REDUNDANCY
from pathfinder.benchmarks.readers import CORRECT, PRMBenchItem, ProcessBenchItem
from pathfinder.core.steps import StepScore

BINS = 10
FEWEST = 10
"""Steps that a part needs to be drawn."""
_POINTS = 200  # of a drawn curve


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewards of steps (float64, shape ``[steps]``) and whether each step is correct (bool, same shape).

    ``files`` are what they were read from.
    """

    values: npt.NDArray[np.float64]
    correct: npt.NDArray[np.bool_]
    files: tuple[str, ...] = ()

    @property
    def has_both(self) -> bool:
        """True if there are correct and incorrect steps; a ranking needs both."""
        return bool(self.correct.any()) and not bool(self.correct.all())

    @property
    def has_objection(self) -> bool:
        """True if some reward is below one half."""
        return bool((self.values < 0.5).any())


@dataclass(frozen=True, slots=True)
class Bin:
    """The steps whose rewards fall into one part of the range: their number, mean reward and correct share."""

    count: int
    reward: float
    correct: float


def processbench_rewards(items: Sequence[ProcessBenchItem], rows: Iterable[Mapping[str, Any]]) -> Rewards:
    """Steps up to and including the first incorrect one; later steps have no label."""
    known = {item.key: item for item in items}
    pairs = []
    for row in rows:
        if (item := known.get((row["subset"], row["id"]))) is not None:
            labelled = len(item.steps) if item.label < 0 else item.label + 1
            sound = [StepScore.of_row(step).read("soundness") for step in row["steps"][:labelled]]
            pairs += [(value, place != item.label) for place, value in enumerate(sound)]
    return _rewards(pairs)


def prmbench_rewards(items: Sequence[PRMBenchItem], rows: Iterable[Mapping[str, Any]]) -> Rewards:
    """Every step of the modified solutions; like the metric, it excludes the correct counterparts."""
    known = {item.idx: item for item in items if item.classification != CORRECT}
    pairs = []
    for row in rows:
        if (item := known.get(row["idx"])) is not None:
            wrong = set(item.error_steps)
            reading = "quality" if item.classification in REDUNDANCY else "soundness"
            values = [StepScore.of_row(step).read(reading) for step in row.get("steps", ())[: len(item.steps)]]
            pairs += [(value, place not in wrong) for place, value in enumerate(values, start=1)]
    return _rewards(pairs)


def roc(rewards: Rewards) -> list[tuple[float, float]]:
    """The curve from (0, 0) to (1, 1): accepted shares of the incorrect and of the correct steps.

    It has one point per distinct reward, so ties count half in the area. It needs correct and incorrect steps.
    """
    order = np.argsort(-rewards.values, kind="stable")
    values, correct = rewards.values[order], rewards.correct[order]
    last = np.append(values[1:] != values[:-1], True)
    hits, false = np.cumsum(correct)[last] / correct.sum(), np.cumsum(~correct)[last] / (~correct).sum()
    return [(0.0, 0.0), *((float(x), float(y)) for x, y in zip(false, hits, strict=True))]


def area(curve: Sequence[tuple[float, float]]) -> float:
    """Area under a curve by trapezoids; for ``roc``, the chance that a correct step outranks an incorrect one."""
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(curve))


def bins(rewards: Rewards) -> list[Bin]:
    """The non-empty ones of ten equal parts of [0, 1]."""
    places = np.minimum((rewards.values * BINS).astype(np.int64), BINS - 1)
    return [
        Bin(int(here.sum()), float(rewards.values[here].mean()), float(rewards.correct[here].mean()))
        for place in range(BINS)
        if (here := places == place).any()
    ]


def calibration_error(found: Sequence[Bin]) -> float:
    """Expected calibration error: the mean gap between reward and correct share, weighted by steps. Needs a bin.

    Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015.
    """
    return sum(part.count * abs(part.reward - part.correct) for part in found) / sum(part.count for part in found)


def brier(rewards: Rewards) -> float:
    """Mean squared gap between the reward and the label (1 correct, 0 incorrect)."""
    return float(((rewards.values - rewards.correct) ** 2).mean())


def thinned(curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """About 200 points of a curve at most, including both ends, for drawing."""
    stride = -(-len(curve) // _POINTS)
    return [*curve[:-1:stride], curve[-1]]


def _rewards(pairs: Sequence[tuple[float, bool]]) -> Rewards:
    values = np.asarray([value for value, _ in pairs], dtype=np.float64)
    return Rewards(values, np.asarray([correct for _, correct in pairs], dtype=np.bool_))
