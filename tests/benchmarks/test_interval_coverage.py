"""Coverage of four kinds of intervals on the same simulated trainings, and of intervals over few problems.

``pytest -m benchmarks -s tests/benchmarks/test_interval_coverage.py`` prints the tables of reliability.md.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import stdtrit
from scipy.stats import binom

from pathfinder.benchmarks.bootstrap import estimate, interval, mean_interval, resamples
from pathfinder.benchmarks.processbench import Table, f1_of
from pathfinder.core.params import Report

PROBLEMS, SAMPLES, TRIALS = 200, 300, 600
# Standard deviations between seeds, problems, and pairs of both, in points of one problem's difference.
WORLDS = {
    "seeds agree": (0.0, 1.0, 1.0),
    "seeds differ little": (0.03, 1.0, 1.0),
    "seeds differ as much as problems": (0.1, 1.0, 1.0),
    "seeds differ more": (0.3, 1.0, 1.0),
    "seeds differ, problems agree": (0.1, 0.3, 1.0),
}
Array = npt.NDArray[np.float64]
Interval = Callable[[Array, np.random.Generator], tuple[float, float]]


def by_problem(part: Array, rng: np.random.Generator) -> tuple[float, float]:
    """The bootstrap over problems of the mean over seeds: new seeds are ignored."""
    low, high = np.quantile(part.mean(0)[1:], [0.025, 0.975])
    return float(low), float(high)


def both_resampled(part: Array, rng: np.random.Generator) -> tuple[float, float]:
    """Percentiles of seeds and problems resampled together (Owen's pigeonhole bootstrap)."""
    seeds, columns = part.shape
    shares = rng.multinomial(seeds, [1 / seeds] * seeds, size=columns - 1) / seeds
    low, high = np.quantile((shares * part[:, 1:].T).sum(1), [0.025, 0.975])
    return float(low), float(high)


def over_seeds(part: Array, rng: np.random.Generator) -> tuple[float, float]:
    """Student's t over the seeds' figures: new problems are ignored."""
    values = part[:, 0]
    half = float(stdtrit(len(values) - 1, 0.975)) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def ours(part: Array, rng: np.random.Generator) -> tuple[float, float]:
    """Both variances, Student's t with Satterthwaite's degrees of freedom."""
    found = estimate([part], 0.95)
    return found.low, found.high


METHODS: dict[str, Interval] = {
    "by problem": by_problem,
    "both resampled": both_resampled,
    "over seeds": over_seeds,
    "ours": ours,
}


def coverage(seeds: int, world: tuple[float, float, float]) -> dict[str, tuple[float, float]]:
    """Share of trials whose interval holds the true difference (zero), and the intervals' mean width, by method."""
    rng = np.random.default_rng(7)
    between, problems, pairs = world
    hits, widths = dict.fromkeys(METHODS, 0), dict.fromkeys(METHODS, 0.0)
    picks = np.stack([np.arange(PROBLEMS), *resamples(PROBLEMS, SAMPLES, 3)])
    weights = np.stack([np.bincount(row, minlength=PROBLEMS) for row in picks]) / PROBLEMS
    for _ in range(TRIALS):
        scores = between * rng.standard_normal((seeds, 1)) + problems * rng.standard_normal(PROBLEMS)
        part = (scores + pairs * rng.standard_normal((seeds, PROBLEMS))) @ weights.T
        for name, method in METHODS.items():
            low, high = method(part, rng)
            hits[name] += low <= 0 <= high
            widths[name] += (high - low) / TRIALS
    return {name: (100 * hits[name] / TRIALS, widths[name]) for name in METHODS}


@pytest.mark.benchmarks
@pytest.mark.parametrize("seeds", [3, 5])
def test_only_the_interval_over_both_covers_in_every_world(seeds: int) -> None:
    found = {name: coverage(seeds, world) for name, world in WORLDS.items()}
    print(f"\n| {seeds} seeds | " + " | ".join(METHODS) + " |\n| --- " + "| ---: " * len(METHODS) + "|")
    for name, row in found.items():
        print(f"| {name} | " + " | ".join(f"{share:.0f} % ({width:.2f})" for share, width in row.values()) + " |")
    worst = {method: min(row[method][0] for row in found.values()) for method in METHODS}
    assert worst["ours"] >= 90
    assert worst["by problem"] < 80
    assert worst["over seeds"] < 90


def exact_coverage(problems: int, share: float) -> float:
    """The chance that the interval of the solved problems contains the true ``share``, percent."""
    solved = np.arange(problems + 1)
    bounds = np.array([mean_interval([1.0] * count + [0.0] * (problems - count)) for count in solved])
    holds = (bounds[:, 0] <= share + 1e-9) & (share - 1e-9 <= bounds[:, 1])
    return 100 * float(binom.pmf(solved, problems, share) @ holds)


@pytest.mark.benchmarks
def test_an_interval_over_few_problems_is_too_narrow_near_zero() -> None:
    shares = (0.02, 0.05, 0.1, 0.2, 0.5)
    print("\n| problems | " + " | ".join(f"{share:.0%}" for share in shares) + " |\n| ---: " + "| ---: " * 5 + "|")
    found = {problems: [exact_coverage(problems, share) for share in shares] for problems in (30, 50, 100, 200, 500)}
    for problems, row in found.items():
        print(f"| {problems} | " + " | ".join(f"{covered:.0f} %" for covered in row) + " |")
    assert all(row[-1] >= 94 for row in found.values())
    assert found[30][0] < 50
    assert min(found[500]) >= 94


def f1_coverage(solutions: int, error: float, correct: float) -> float:
    """The share of ``TRIALS`` sets whose interval contains the true mean F1, percent; ``solutions`` per subset."""
    rng, names = np.random.default_rng(4), ("a", "b", "c", "d")
    subset, wrong = np.repeat(np.arange(4), solutions), np.tile(np.arange(solutions) < 0.6 * solutions, 4)
    true, strata, found = float(f1_of(np.array([100 * error, 100 * correct]))), [names[place] for place in subset], 0
    for _ in range(TRIALS):
        table = Table(names, subset, wrong, rng.random(len(subset)) < np.where(wrong, error, correct))
        low, high = interval(len(subset), table.mean_f1, Report(bootstrap_samples=SAMPLES, seed=3), strata)
        found += low <= true <= high
    return 100 * found / TRIALS


@pytest.mark.benchmarks
def test_the_interval_of_a_mean_f1_near_chance_lies_too_low() -> None:
    chance, good = f1_coverage(200, 0.1, 0.1), f1_coverage(200, 0.7, 0.98)
    print(f"\nmean F1: {chance:.0f} % near chance, {good:.0f} % for a good predictor")
    assert 80 < chance < 92 < good < 98
