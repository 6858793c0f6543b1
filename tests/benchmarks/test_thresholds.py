"""All thresholds at once, compared with predicting and grading at each."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathfinder.benchmarks.processbench import evaluate
from pathfinder.benchmarks.readers import SUBSETS, ProcessBenchItem
from pathfinder.benchmarks.thresholds import sweep

SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5000001, 0.9, 1.0, -3.0, math.nan])
ITEMS = st.lists(
    st.tuples(st.sampled_from(SUBSETS), st.lists(SCORES, max_size=5), st.integers(-1, 5)), min_size=1, max_size=25
)


def item(subset: str, at: int, steps: int, label: int) -> ProcessBenchItem:
    return ProcessBenchItem(subset, str(at), "p", tuple("s" * steps), label, None, "g")


def first_below(scores: list[float], threshold: float) -> int:
    return next((at for at, score in enumerate(scores) if score < threshold), -1)


@settings(deadline=None)
@given(ITEMS, st.sampled_from([-5.0, 0.0, 0.1, 0.3, 0.5, 0.7, 1.0, 2.0]))
def test_the_sweep_is_what_grading_at_each_threshold_gives(
    rows: list[tuple[str, list[float], int]], threshold: float
) -> None:
    items = [item(subset, at, len(scores), label) for at, (subset, scores, label) in enumerate(rows)]
    scores = [mine for _, mine, _ in rows]
    found = sweep(items, scores)

    def graded(at: float) -> dict[str, float]:
        predictions = {(i.subset, i.id): first_below(mine, at) for i, mine in zip(items, scores, strict=True)}
        return {name: figures["f1"] for name, figures in evaluate(items, predictions)["subsets"].items()}

    assert dict(zip(found.subsets, found.at(threshold), strict=True)) == pytest.approx(graded(threshold), abs=1e-9)
    best = max(sum(graded(at).values()) for at in {*found.thresholds, threshold})
    assert sum(graded(found.best()).values()) == pytest.approx(best, abs=1e-9)
    assert found.summary().as_json()["oracle_upper_bound"]["mean_f1"] == pytest.approx(
        best / len(found.subsets), abs=1e-9
    )


def test_by_hand() -> None:
    """An incorrect step at 0.2 after one at 0.6, and a correct solution at 0.4: both hit above 0.2, up to 0.4."""
    items = [item("gsm8k", 0, 2, 1), item("gsm8k", 1, 1, -1), item("math", 0, 1, 0), item("math", 1, 1, -1)]
    found = sweep(items, [[0.6, 0.2], [0.4], [0.7], [0.8]])
    assert found.at(0.2).tolist() == [0.0, 0.0]
    assert found.at(0.4).tolist() == [100.0, 0.0]
    assert found.at(0.75).tolist() == [0.0, 100.0]
    assert found.best("gsm8k") == 0.4
    assert found.best("math") == 0.8
    summary = found.summary().as_json()
    assert summary["fixed"] == {"threshold": 0.5, "mean_f1": 0.0, "subsets": {"gsm8k": 0.0, "math": 0.0}}
    assert summary["chosen_on_gsm8k"]["mean_f1"] == summary["oracle_upper_bound"]["mean_f1"] == 50.0
    assert summary["curve"][8] == [0.4, 50.0]


def test_degenerate_sets() -> None:
    assert sweep([item("math", 0, 0, -1)], [[]]).summary().as_json()["oracle_upper_bound"]["mean_f1"] == 0.0
    unscored = sweep([item("math", 0, 1, -1), item("math", 1, 1, 0), item("math", 2, 1, -1)], [None, [0.3], [0.4]])
    assert unscored.at(0.35).tolist() == pytest.approx([200 / 3]), "one of two right solutions: 2 * 100 * 50 / 150"
    only = sweep([item("math", 0, 1, 3)], [[0.1]])
    assert only.best() == math.inf
    assert only.summary().as_json()["oracle_upper_bound"] == {
        "threshold": None,
        "mean_f1": 0.0,
        "subsets": {"math": 0.0},
    }
    assert "chosen_on_gsm8k" not in only.summary().as_json()
