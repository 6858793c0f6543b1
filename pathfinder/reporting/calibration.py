"""How well scores rank steps, and how calibrated they are, on the benchmarks' gold labels: figures, charts and tables.

Each score is read as the benchmark asks: soundness, and quality in PRMBench's classes about redundancy. A score that
lacks the reading is read by the one it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks.prmbench import REDUNDANCY
from pathfinder.benchmarks.readers import CORRECT, PRMBenchItem, ProcessBenchItem
from pathfinder.core.steps import StepScore
from pathfinder.pages.origins import Sourced
from pathfinder.pages.page import Block, Table
from pathfinder.pages.svg import Points, line_chart
from pathfinder.reporting.cells import chart
from pathfinder.reporting.names import CAPTIONS
from pathfinder.reporting.origins import from_files

Item = TypeVar("Item", bound=ProcessBenchItem | PRMBenchItem)
BINS = 10
_FEWEST = 10  # steps that a part needs to be drawn
_POINTS = 200  # of a drawn curve
_DIAGONAL: Points = [(0.0, 0.0), (1.0, 1.0)]


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


def paired(items: Iterable[Item], rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Item, Mapping[str, Any]]]:
    """The rows of a prediction file with their items; rows of other items are left out."""
    known = {item.key: item for item in items}
    for row in rows:
        if (item := known.get(row.get("idx") or (row["subset"], row["id"]))) is not None:
            yield item, row


def processbench_rewards(items: Sequence[ProcessBenchItem], rows: Iterable[Mapping[str, Any]]) -> Rewards:
    """Steps up to and including the first incorrect one; later steps have no label."""
    pairs = []
    for item, row in paired(items, rows):
        labelled = len(item.steps) if item.label < 0 else item.label + 1
        sound = [StepScore.of_row(step).read("soundness") for step in row["steps"][:labelled]]
        pairs += [(value, place != item.label) for place, value in enumerate(sound)]
    return _rewards(pairs)


def prmbench_rewards(items: Sequence[PRMBenchItem], rows: Iterable[Mapping[str, Any]]) -> Rewards:
    """Every step of the modified solutions; like the metric, it excludes the correct counterparts."""
    pairs = []
    for item, row in paired((item for item in items if item.classification != CORRECT), rows):
        reading = "quality" if item.classification in REDUNDANCY else "soundness"
        values = [StepScore.of_row(step).read(reading) for step in row.get("steps", ())[: len(item.steps)]]
        pairs += [(value, place not in item.error_steps) for place, value in enumerate(values, start=1)]
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


def area(curve: Points) -> float:
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


def thinned(curve: Points) -> Points:
    """About 200 points of a curve at most, including both ends, for drawing."""
    stride = -(-len(curve) // _POINTS)
    return [*curve[:-1:stride], curve[-1]]


def drawn(found: Sequence[Bin]) -> list[Bin]:
    """The bins with enough steps to be drawn."""
    return [part for part in found if part.count >= _FEWEST]


def reward_quality(benchmark: str, found: Mapping[str, Rewards]) -> list[Block]:
    """ROC and calibration curves of each system's scores, with area, calibration error and Brier score.

    Empty without rewards.
    """
    if not found:
        return []
    ranking: dict[str, Points] = {}
    calibration: dict[str, Points] = {}
    rows, gaps = [], []
    for name, rewards in found.items():
        curve, parts = roc(rewards), bins(rewards)
        origin = from_files("statistic", rewards.files)
        texts = [f"{len(rewards.values):,}", f"{100 * float(rewards.correct.mean()):.1f}"]
        texts += [f"{figure:.3f}" for figure in (area(curve), calibration_error(parts), brier(rewards))]
        rows.append((name, *(Sourced(text, origin) for text in texts)))
        gaps.append(f"{name}: " + ", ".join(f"{part.correct:.2f} at {part.reward:.2f}" for part in parts))
        ranking[name] = thinned(curve)
        calibration[name] = [(part.reward, part.correct) for part in drawn(parts)]
    axes = "share of incorrect steps accepted", "share of correct steps accepted"
    headers = ("system", "steps", "correct, %", "area under ROC", "calibration error", "Brier score")
    origins = [from_files("statistics", rewards.files) for rewards in found.values()]
    return [
        chart(
            line_chart(ranking | {"chance": _DIAGONAL}, *axes, guide="chance"),
            (f"{row[0]}: area {row[3]}" for row in rows),
            origins,
            f"ROC curve of the scores on the steps of {benchmark}: one point per threshold.",
        ),
        chart(
            line_chart(
                calibration | {"calibrated": _DIAGONAL},
                "mean score of the steps",
                "share of correct steps",
                {},
                "calibrated",
            ),
            gaps,
            origins,
            f"Calibration of the scores on the steps of {benchmark}: one point per tenth of the range with {_FEWEST} "
            "steps or more.",
            "Share of correct steps by mean score. ",
        ),
        Table(CAPTIONS["ranking"].format(benchmark=benchmark), headers, rows),
    ]


def _rewards(pairs: Sequence[tuple[float, bool]]) -> Rewards:
    values = np.asarray([value for value, _ in pairs], dtype=np.float64)
    return Rewards(values, np.asarray([correct for _, correct in pairs], dtype=np.bool_))
