from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pathfinder.benchmarks.bootstrap import (
    adjusted,
    estimate,
    interval,
    mean_interval,
    pooled,
    replicate,
    resamples,
    sums,
)
from pathfinder.core.params import Report


def _report(samples: int, seed: int) -> Report:
    return Report(bootstrap_samples=samples, seed=seed)


def test_the_interval_of_a_constant_is_that_constant() -> None:
    assert mean_interval([3.0] * 17, _report(200, 1)) == [3.0, 3.0]


def test_the_interval_of_a_mean_agrees_with_the_normal_one() -> None:
    values = np.random.default_rng(5).normal(10, 2, size=400)
    low, high = mean_interval(values.tolist(), _report(4000, 7))
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - half, abs=0.03)
    assert high == pytest.approx(values.mean() + half, abs=0.03)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    hits = 0
    for trial in range(200):
        low, high = mean_interval((rng.random(80) < 0.3).astype(float).tolist(), _report(300, trial))
        hits += low <= 0.3 <= high
    assert 181 <= hits <= 199  # 190 expected, three standard deviations


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    values = [float(number % 7) for number in range(50)]
    assert mean_interval(values, _report(500, 3)) == mean_interval(values, _report(500, 3))
    assert mean_interval(values, _report(500, 3)) != mean_interval(values, _report(500, 4))
    assert len(list(resamples(50, 7, 3))) == 7
    values_of_all = replicate(50, lambda rows: rows.sum(-1), _report(7, 3))
    assert (len(values_of_all), values_of_all[0]) == (8, sum(range(50)))


def test_strata_keep_their_sizes() -> None:
    strata = ["a"] * 3 + ["b"] * 9
    for rows in resamples(12, 40, 2, strata):
        assert (rows < 3).sum() == 3
        assert (rows >= 3).sum() == 9


def test_a_statistic_gets_many_resamples_at_once_and_its_values_are_those_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums by group are added in the order of the problems, and resamples that do not fit come in parts."""
    rng = np.random.default_rng(3)
    groups, values = rng.integers(0, 3, 40), rng.normal(size=40)
    shapes = []

    def statistic(rows: np.ndarray) -> np.ndarray:
        shapes.append(rows.shape)
        return np.asarray((sums(rows, groups, 3, values) / sums(rows, groups, 3)).mean(-1))

    strata = [f"{group}" for group in groups]
    whole = replicate(40, statistic, _report(50, 3), strata)
    assert shapes == [(40,), (50, 40)]
    alone = [np.bincount(groups[r], values[r]) / np.bincount(groups[r]) for r in resamples(40, 50, 3, strata)]
    assert whole[1:].tolist() == [float(found.mean()) for found in alone]
    monkeypatch.setattr("pathfinder.benchmarks.bootstrap._AT_ONCE", 20 * 40)
    assert replicate(40, statistic, _report(50, 3), strata).tolist() == whole.tolist()
    assert shapes[-3:] == [(20, 40), (20, 40), (10, 40)]


def test_pairing_sees_a_small_steady_difference_that_two_intervals_hide() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(50, 20, size=200)
    better = base + 1 + rng.normal(0, 0.5, size=200)
    left = replicate(200, lambda rows: better[rows].mean(-1), _report(1000, 5))
    right = replicate(200, lambda rows: base[rows].mean(-1), _report(1000, 5))
    found = estimate([(left - right)[None]], 0.95)
    assert found.is_clear
    assert 0.8 < found.low < found.value < found.high < 1.2
    assert found.p == pytest.approx(1 / 1000)
    low, high = mean_interval(better.tolist(), _report(1000, 5))
    assert low < base.mean() < high


def test_one_seed_by_hand() -> None:
    """The interval has the quartiles of the resamples; p is twice the smaller share on one side of zero."""
    row = np.array([[40.0, -10, 0, 10, 20, 30, 40, 50, 60, 70]])
    found = estimate([row], 0.5)
    assert (found.value, found.low, found.high) == (40, 10, 50)
    assert found.p == pytest.approx(2 * 2 / 9)
    mirrored = estimate([-row], 0.5)
    assert (mirrored.value, mirrored.low, mirrored.high, mirrored.p) == (-40, -50, -10, found.p)
    assert estimate([row + 20], 0.5).p == pytest.approx(1 / 9)
    assert estimate([row, row], 0.5).high == 100


@pytest.mark.parametrize("sign", [1, -1])
def test_the_interval_whose_confidence_is_one_minus_p_touches_zero(sign: int) -> None:
    problems = replicate(100, lambda r: r.mean(-1) - 48, _report(400, 2))
    parts = [sign * (problems + np.array([[-1.5], [1.0], [0.5]]))]
    p = estimate(parts, 0.95).p
    touching = estimate(parts, 1 - p)
    assert 0.01 < p < 0.99
    assert (touching.low if sign > 0 else touching.high) == pytest.approx(0, abs=1e-9)


def test_freedom_follows_satterthwaite() -> None:
    """Two parts with 2 and 3 seeds whose problems do not vary: the interval is the interval of Welch's t."""
    left, right = np.array([1.0, 3.0]), np.array([2.0, 5.0, 11.0])
    parts = [np.repeat(left[:, None], 5, axis=1), -np.repeat(right[:, None], 5, axis=1)]
    parts[0][:, 1] += [5, -5]  # a resample in which the seeds differ more
    found = estimate(parts, 0.95)
    welch = stats.ttest_ind(left, right, equal_var=False)
    low, high = welch.confidence_interval(0.95)
    assert (found.value, found.low, found.high) == pytest.approx((left.mean() - right.mean(), low, high))
    assert found.p == pytest.approx(welch.pvalue)


def test_no_difference_is_not_clear() -> None:
    values = np.arange(30, dtype=float)
    one = replicate(30, lambda r: values[r].mean(-1), _report(100, 5))
    for seeds in (1, 3):
        found = estimate([np.stack([one - one] * seeds)], 0.95)
        assert (found.value, found.low, found.high, found.p, found.is_clear) == (0, 0, 0, 1, False)


def test_seeds_that_agree_leave_the_spread_of_problems_and_seeds_that_differ_widen_it() -> None:
    values = np.random.default_rng(1).normal(50, 10, size=300)
    one = replicate(300, lambda r: values[r].mean(-1), _report(2000, 5))
    single, same = (estimate([np.stack([one] * seeds)], 0.95) for seeds in (1, 5))
    assert same.value == pytest.approx(single.value)
    assert same.high - same.low == pytest.approx(single.high - single.low, rel=0.05)
    shifts = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    apart = estimate([one + shifts[:, None]], 0.95)
    # by hand: between seeds sqrt(2.5 / 5) = 0.707, over problems about 10 / sqrt(300) = 0.577
    spread = np.sqrt(0.5 + one[1:].var())
    assert 2.1 < (apart.high - apart.value) / spread < 2.5  # Student's t between 4 (2.78) and many (1.96) degrees
    assert apart.value == pytest.approx(same.value)


def test_unpaired_seeds_are_two_parts_and_pairing_removes_what_seeds_share() -> None:
    noise = np.random.default_rng(3).normal(0, 0.4, size=(1, 401))
    noise[0, 0] = 0
    shared = np.array([[0.0], [4.0], [8.0], [12.0]])
    left, right = 51 + shared + noise, 50 + shared + np.zeros((1, 401))
    assert estimate([left - right], 0.95).is_clear
    unpaired = estimate([left, -right], 0.95)
    assert unpaired.value == pytest.approx(1)
    assert not unpaired.is_clear


def test_a_system_with_one_seed_varies_as_much_as_those_beside_it() -> None:
    problems = replicate(100, lambda r: r.mean(-1), _report(400, 2))
    several = [problems + np.array(shifts)[:, None] for shifts in ([-1.0, 1.0], [-3.0, 0.0, 3.0])]
    several[0][0, 1:] += 5  # only the figure on all problems counts
    spread = pooled([*several, problems[None]])
    assert spread is not None
    # by hand: variances 2 (one degree of freedom) and 9 (two)
    assert spread.variance == pytest.approx(20 / 3)
    assert spread.freedom == 3
    assert spread.of(3, 1).variance == pytest.approx(20 / 3 * 4 / 3)
    assert pooled([problems[None]]) is None
    alone, wider = (estimate([problems[None]], 0.95, between) for between in (None, spread.of(1)))
    assert wider.value == alone.value
    root = np.sqrt(20 / 3 + problems[1:].var())
    assert 2.1 < (wider.high - wider.value) / root < 2.2  # Student's t, 15.4 degrees of freedom


@pytest.mark.parametrize("others", [2, 4])
def test_borrowed_spread_covers_new_seeds_too(others: int) -> None:
    """A system with three seeds, another with ``others`` seeds, and a rival with one; the true difference is zero."""
    rng = np.random.default_rng(29)
    hits, trials = 0, 300
    for _ in range(trials):
        runs = [0.5 * rng.standard_normal(count) + 0.2 * rng.standard_normal() for count in (others, 3, 1)]
        rows = [np.column_stack([run, run[:, None] + 0.2 * rng.standard_normal(200)]) for run in runs]
        spread = pooled(rows[:2])
        assert spread is not None
        found = estimate([rows[1], -rows[2]], 0.95, spread.of(3, 1))
        hits += found.low <= 0 <= found.high
    assert hits / trials > 0.9


@pytest.mark.parametrize(("seeds", "between"), [(3, 0.0), (3, 0.3), (5, 0.1), (5, 0.3)])
def test_the_interval_over_seeds_and_problems_covers_new_seeds_and_problems(seeds: int, between: float) -> None:
    """Differences with a spread between seeds, between problems and between both; the truth is zero."""
    rng = np.random.default_rng(17)
    problems, hits, trials = 150, 0, 200
    for trial in range(trials):
        scores = between * rng.standard_normal((seeds, 1)) + rng.standard_normal(problems)
        scores = scores + rng.standard_normal((seeds, problems))
        picks = np.stack([np.arange(problems), *resamples(problems, 150, trial)])
        found = estimate([scores[:, picks].mean(2)], 0.95)
        hits += found.low <= 0 <= found.high
    assert hits / trials > 0.9


def test_holm_by_hand() -> None:
    assert adjusted([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert adjusted([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert adjusted([0.6, 0.9]) == [1.0, 1.0]
    assert adjusted([]) == []


def test_degenerate_input_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        mean_interval([], _report(10, 0))
    assert mean_interval([1.0], _report(1, 0)) == [1.0, 1.0]
    with pytest.raises(ValueError, match="not finite"):
        interval(3, lambda rows: rows.mean(-1) * np.nan, _report(10, 0))
    with pytest.raises(ValueError, match="one name per problem"):
        interval(3, lambda rows: rows.mean(-1), _report(10, 0), strata=["a"])
