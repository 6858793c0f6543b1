"""Ranking and calibration of rewards, compared with values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathfinder.benchmarks.readers import PRMBenchItem, ProcessBenchItem
from pathfinder.reporting.calibration import (
    Rewards,
    area,
    bins,
    brier,
    calibration_error,
    prmbench_rewards,
    processbench_rewards,
    roc,
    thinned,
)


def rewards(*pairs: tuple[float, bool]) -> Rewards:
    return Rewards(np.array([value for value, _ in pairs]), np.array([correct for _, correct in pairs], dtype=np.bool_))


def test_the_curve_by_hand() -> None:
    found = rewards((0.9, True), (0.8, False), (0.7, True), (0.1, False))
    assert roc(found) == [(0, 0), (0, 0.5), (0.5, 0.5), (0.5, 1), (1, 1)]
    assert area(roc(found)) == 0.75
    assert brier(found) == pytest.approx((0.01 + 0.64 + 0.09 + 0.01) / 4)


steps = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.25, 0.5, 0.9, 1.0]), st.booleans()), min_size=2, max_size=40)


@given(steps)
def test_the_area_is_the_chance_that_a_correct_step_outranks_an_incorrect_one(pairs: list[tuple[float, bool]]) -> None:
    found = rewards(*pairs)
    parts = bins(found)
    assert sum(one.count for one in parts) == len(pairs)
    assert 0 <= calibration_error(parts) <= 1
    if found.has_both:
        yes, no = ([v for v, correct in pairs if correct is kind] for kind in (True, False))
        chance = np.mean([(a > b) + 0.5 * (a == b) for a in yes for b in no])
        assert area(roc(found)) == pytest.approx(chance)


def test_rewards_that_are_probabilities_are_calibrated() -> None:
    rng = np.random.default_rng(2)
    values = rng.random(20_000)
    honest = Rewards(values, rng.random(20_000) < values)
    assert calibration_error(bins(honest)) < 0.02
    bold = Rewards(np.round(values), honest.correct)
    assert calibration_error(bins(bold)) == pytest.approx(0.25, abs=0.02)


def test_a_thinned_curve_keeps_its_ends() -> None:
    curve = [(place / 9999, place / 9999) for place in range(10_000)]
    assert len(thinned(curve)) <= 201
    assert thinned(curve)[0] == curve[0]
    assert thinned(curve)[-1] == curve[-1]
    assert thinned(curve[:2]) == curve[:2]


def test_steps_after_the_first_incorrect_one_have_no_label_on_processbench() -> None:
    items = [
        ProcessBenchItem("math", "wrong", "p", ("a", "b", "c"), 1, None, "g"),
        ProcessBenchItem("math", "right", "p", ("a", "b"), -1, None, "g"),
    ]
    rows = [
        {"subset": "math", "id": "wrong", "steps": [{"reward": 0.9}, {"reward": 0.2}, {"reward": 0.7}]},
        {"subset": "math", "id": "right", "steps": [{"reward": 0.8}, {"reward": 0.6}]},
        {"subset": "math", "id": "unknown", "steps": [{"reward": 0.5}]},
    ]
    found = processbench_rewards(items, rows)
    assert found.values.tolist() == [0.9, 0.2, 0.8, 0.6]
    assert found.correct.tolist() == [True, False, True, True]


def test_all_modified_steps_of_prmbench_count_and_correct_counterparts_do_not() -> None:
    items = [
        PRMBenchItem("circular_1", "circular", "p", ("a", "b"), (2, 9)),
        PRMBenchItem("correct_circular_1", "correct", "p", ("a",), ()),
    ]
    rows = [
        {"idx": "circular_1", "steps": [{"reward": 0.9}, {"reward": 0.4}, {"reward": 0.1}]},
        {"idx": "correct_circular_1", "steps": [{"reward": 0.3}]},
    ]
    found = prmbench_rewards(items, rows)
    assert (found.values.tolist(), found.correct.tolist()) == ([0.9, 0.4], [True, False])
    assert not prmbench_rewards([], rows).has_both


def test_rewards_are_read_as_each_benchmark_asks() -> None:
    """Soundness, but quality in the two classes about redundancy."""
    steps = [{"math": 0.9, "consistency": 0.8, "reward": 0.3}]
    names = ("circular", "redundency", "deception")
    items = [PRMBenchItem(name, name, "p", ("a",), ()) for name in names]
    assert prmbench_rewards(items, [{"idx": name, "steps": steps} for name in names]).values.tolist() == [0.3, 0.3, 0.8]
    item = ProcessBenchItem("math", "1", "p", ("a",), -1, None, "g")
    assert processbench_rewards([item], [{"subset": "math", "id": "1", "steps": steps}]).values.tolist() == [0.8]
