"""How well rewards rank steps and how far they can be taken for probabilities, against the gold of the benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks.readers import CORRECT, PRMBenchItem, ProcessBenchItem

BINS = 10
_POINTS = 200  # of a drawn curve


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewards of steps (float64, shape ``[steps]``) and which of them are sound (bool)."""

    values: npt.NDArray[np.float64]
    sound: npt.NDArray[np.bool_]

    @property
    def has_both(self) -> bool:
        """Whether there are sound steps and wrong ones; a ranking needs both."""
        return bool(self.sound.any()) and not bool(self.sound.all())


@dataclass(frozen=True, slots=True)
class Bin:
    """The steps whose rewards fall into one part of the range: how many, their mean reward, their sound share."""

    count: int
    reward: float
    sound: float


def processbench_rewards(items: Sequence[ProcessBenchItem], rows: Iterable[Mapping[str, Any]]) -> Rewards:
    """Steps up to the first wrong one; what follows it has no label."""
    known = {(item.subset, item.id): item for item in items}
    pairs = []
    for row in rows:
        if (item := known.get((row["subset"], row["id"]))) is not None:
            labelled = len(item.steps) if item.label < 0 else item.label + 1
            pairs += [(step["reward"], place != item.label) for place, step in enumerate(row["steps"][:labelled])]
    return _rewards(pairs)


def prmbench_rewards(items: Sequence[PRMBenchItem], rows: Iterable[Mapping[str, Any]]) -> Rewards:
    """Every step of the modified solutions; their correct counterparts are left out, as in the metric."""
    known = {item.idx: item for item in items if item.classification != CORRECT}
    pairs = []
    for row in rows:
        if (item := known.get(row["idx"])) is not None:
            wrong = set(item.error_steps)
            steps = row.get("steps", ())[: len(item.steps)]
            pairs += [(step["reward"], place + 1 not in wrong) for place, step in enumerate(steps)]
    return _rewards(pairs)


def roc(rewards: Rewards) -> list[tuple[float, float]]:
    """The curve from (0, 0) to (1, 1): share of wrong steps called sound, share of sound steps called sound.

    One point a distinct reward, so that ties count half in the area. Needs sound and wrong steps.
    """
    order = np.argsort(-rewards.values, kind="stable")
    values, sound = rewards.values[order], rewards.sound[order]
    last = np.append(values[1:] != values[:-1], True)
    hits, false = np.cumsum(sound)[last] / sound.sum(), np.cumsum(~sound)[last] / (~sound).sum()
    return [(0.0, 0.0), *((float(x), float(y)) for x, y in zip(false, hits, strict=True))]


def area(curve: Sequence[tuple[float, float]]) -> float:
    """Area under a curve by trapezoids: of ``roc``, the chance that a sound step outranks a wrong one."""
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(curve))


def bins(rewards: Rewards) -> list[Bin]:
    """Ten equal parts of [0, 1], the empty ones left out."""
    places = np.minimum((rewards.values * BINS).astype(np.int64), BINS - 1)
    return [
        Bin(int(here.sum()), float(rewards.values[here].mean()), float(rewards.sound[here].mean()))
        for place in range(BINS)
        if (here := places == place).any()
    ]


def calibration_error(found: Sequence[Bin]) -> float:
    """Expected calibration error: the mean gap between reward and sound share, weighted by steps. Needs a bin.

    Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015.
    """
    return sum(one.count * abs(one.reward - one.sound) for one in found) / sum(one.count for one in found)


def brier(rewards: Rewards) -> float:
    """Mean squared gap between the reward and what the step is (1 sound, 0 wrong)."""
    return float(((rewards.values - rewards.sound) ** 2).mean())


def thinned(curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most some 200 points of a curve, both ends kept, for drawing."""
    stride = -(-len(curve) // _POINTS)
    return [*curve[:-1:stride], curve[-1]]


def _rewards(pairs: Sequence[tuple[float, bool]]) -> Rewards:
    values = np.asarray([value for value, _ in pairs], dtype=np.float64)
    return Rewards(values, np.asarray([sound for _, sound in pairs], dtype=np.bool_))
