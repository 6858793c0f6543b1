from __future__ import annotations

import numpy as np
import pytest

from stages.core.bootstrap import interval, mean_interval, paired, resamples


def test_the_interval_of_a_constant_is_that_constant() -> None:
    assert mean_interval([3.0] * 17, 200, 0.95, 1) == (3.0, 3.0)


def test_the_interval_of_a_mean_agrees_with_the_normal_one() -> None:
    values = np.random.default_rng(5).normal(10, 2, size=400)
    low, high = mean_interval(values.tolist(), 4000, 0.95, 7)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - half, abs=0.03)
    assert high == pytest.approx(values.mean() + half, abs=0.03)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    hits = 0
    for trial in range(200):
        low, high = mean_interval((rng.random(80) < 0.3).astype(float).tolist(), 300, 0.9, trial)
        hits += low <= 0.3 <= high
    assert 165 <= hits <= 195  # 180 expected, three standard deviations


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    values = [float(number % 7) for number in range(50)]
    assert mean_interval(values, 500, 0.95, 3) == mean_interval(values, 500, 0.95, 3)
    assert mean_interval(values, 500, 0.95, 3) != mean_interval(values, 500, 0.95, 4)


def test_strata_keep_their_sizes() -> None:
    strata = ["a"] * 3 + ["b"] * 9
    for rows in resamples(12, 40, 2, strata):
        assert (rows < 3).sum() == 3
        assert (rows >= 3).sum() == 9


def test_pairing_sees_a_small_steady_difference_that_two_intervals_hide() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(50, 20, size=200)
    better = base + 1 + rng.normal(0, 0.5, size=200)
    found = paired(200, lambda r: float(better[r].mean()), lambda r: float(base[r].mean()), 1000, 0.95, 5)
    assert found.is_clear
    assert 0.8 < found.low < found.value < found.high < 1.2
    assert found.p == pytest.approx(1 / 1000)
    low, high = mean_interval(better.tolist(), 1000, 0.95, 5)
    assert low < base.mean() < high


def test_no_difference_is_not_clear() -> None:
    values = np.arange(30, dtype=float)
    found = paired(30, lambda r: float(values[r].mean()), lambda r: float(values[r].mean()), 100, 0.95, 5)
    assert (found.value, found.low, found.high, found.p, found.is_clear) == (0, 0, 0, 1, False)


def test_degenerate_input_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        mean_interval([], 10, 0.95, 0)
    with pytest.raises(ValueError, match="confidence is 95"):
        mean_interval([1.0], 10, 95, 0)
    with pytest.raises(ValueError, match="not finite"):
        interval(3, lambda rows: float("nan"), 10, 0.95, 0)
    with pytest.raises(ValueError, match="one name per problem"):
        interval(3, lambda rows: 0.0, 10, 0.95, 0, strata=["a"])
