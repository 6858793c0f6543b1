"""ProcessBench's metric by hand, in its degenerate cases, and against the published arithmetic."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pathfinder.benchmarks.bootstrap import resamples
from pathfinder.benchmarks.processbench import (
    Table,
    by_generator,
    evaluate,
    f1_of,
    first_error,
    trivial_predictors,
    with_interval,
)
from pathfinder.benchmarks.readers import ProcessBenchItem
from pathfinder.core.params import Report

REPORT = Report(bootstrap_samples=200, seed=1)


def item(subset: str, name: str, label: int, steps: int = 4, generator: str = "g") -> ProcessBenchItem:
    return ProcessBenchItem(subset, name, f"problem {name}", tuple("abcdefgh"[:steps]), label, None, generator)


ITEMS = [
    item("gsm8k", "0", 1),
    item("gsm8k", "1", 0, generator="h"),
    item("gsm8k", "2", 3),
    item("gsm8k", "3", -1),
    item("gsm8k", "4", -1, generator="h"),
    item("math", "0", 2),
    item("math", "1", -1),
]
SAID = {
    ("gsm8k", "0"): 1,
    ("gsm8k", "1"): 1,
    ("gsm8k", "2"): -1,
    ("gsm8k", "3"): -1,
    ("gsm8k", "4"): 0,
    ("math", "0"): 2,
    ("math", "1"): -1,
}


def test_by_hand() -> None:
    """gsm8k: 1 of 3 with an error, 1 of 2 without: 2 * 100/3 * 50 / (100/3 + 50) = 40. math: all hit."""
    found = evaluate(ITEMS, SAID)
    assert found["subsets"]["gsm8k"] == pytest.approx(
        {"error_acc": 100 / 3, "correct_acc": 50.0, "f1": 40.0, "n_error": 3, "n_correct": 2}
    )
    assert found["subsets"]["math"]["f1"] == 100.0
    assert found["mean_f1"] == pytest.approx(70.0)
    assert evaluate(ITEMS, SAID, "official") == found


def test_the_first_error_is_an_index_or_minus_one() -> None:
    assert first_error([True, False, False]) == 1
    assert first_error([True, True]) == first_error([]) == -1


def test_no_answer_is_a_miss() -> None:
    silent = evaluate(ITEMS, dict.fromkeys(SAID))
    assert silent == evaluate(ITEMS, {})
    assert silent["mean_f1"] == 0.0
    assert evaluate(ITEMS, SAID | {("gsm8k", "3"): None})["subsets"]["gsm8k"]["correct_acc"] == 0.0


def test_degenerate_cases_are_defined() -> None:
    """Both accuracies 0, and a subset without one of the classes: NaN as published (None here), 0 repaired."""
    wrong = {("gsm8k", str(i)): 2 for i in range(5)}
    assert evaluate(ITEMS[:5], wrong)["subsets"]["gsm8k"]["f1"] == 0.0
    assert evaluate(ITEMS[:5], wrong, "official")["subsets"]["gsm8k"]["f1"] is None
    only_errors = ITEMS[:3]
    assert evaluate(only_errors, SAID)["subsets"]["gsm8k"] == pytest.approx(
        {"error_acc": 100 / 3, "correct_acc": 0.0, "f1": 0.0, "n_error": 3, "n_correct": 0}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate(only_errors, SAID, "official")["subsets"]["gsm8k"]["correct_acc"] is None
        assert evaluate(ITEMS[:5], wrong, "official")["mean_f1"] is None


def test_a_small_f1_is_not_zero() -> None:
    assert f1_of(np.array([[0.5, 0.0], [0.25, 0.0]])) == pytest.approx([1 / 3, 0.0])


def test_figures_are_plain_numbers_and_official_has_no_mean_of_an_undefined_f1() -> None:
    found = evaluate(ITEMS, SAID)
    subset = found["subsets"]["gsm8k"]
    assert {type(subset[name]) for name in ("error_acc", "correct_acc", "f1")} == {type(found["mean_f1"])} == {float}
    assert {type(subset[name]) for name in ("n_error", "n_correct")} == {int}
    assert list(found["subsets"]) == ["gsm8k", "math"]
    assert evaluate(ITEMS[:3], SAID, "official")["mean_f1"] is None
    assert evaluate(ITEMS[:3] + ITEMS[5:], SAID)["mean_f1"] == 50.0


def test_interval_is_that_of_items_drawn_within_each_subset() -> None:
    found = with_interval(ITEMS, SAID, REPORT)
    table = Table.of(ITEMS, SAID)
    drawn = resamples(len(ITEMS), 200, 1, [item.subset for item in ITEMS])
    assert found["interval"] == pytest.approx(np.quantile([table.mean_f1(rows) for rows in drawn], [0.025, 0.975]))
    assert found["interval"][0] < found["interval"][1]


def test_interval_holds_the_figure_and_repeats() -> None:
    items = [item("math", str(i), i % 4 - 1) for i in range(200)]
    predictions = {(i.subset, i.id): i.label if int(i.id) % 3 else 0 for i in items}
    found = with_interval(items, predictions, REPORT)
    low, high = found["interval"]
    assert low < found["mean_f1"] < high
    assert with_interval(items, predictions, REPORT) == found


def test_trivial_predictors() -> None:
    items = [item("math", str(i), [-1, -1, 0, 0, 1, 2][i % 6]) for i in range(600)]
    found = trivial_predictors(items, REPORT)
    assert found["majority"]["mean_f1"] == 0.0
    assert found["majority"]["subsets"]["math"]["correct_acc"] == 100.0
    assert found["first_step"]["subsets"]["math"]["error_acc"] == 50.0
    assert found["first_step"]["subsets"]["math"]["correct_acc"] == 0.0
    assert found["chance"]["subsets"]["math"]["correct_acc"] == pytest.approx(20, abs=6)
    assert trivial_predictors(items, REPORT) == found
    assert found["chance"]["mean_f1"] == pytest.approx(20, abs=5)  # one in five places, none included


def test_by_generator() -> None:
    found = by_generator(ITEMS[:5], SAID)
    assert found["g"] == {"error_acc": 50.0, "correct_acc": 100.0, "f1": pytest.approx(200 / 3), "n": 3}
    assert found["h"] == {"error_acc": 0.0, "correct_acc": 0.0, "f1": 0.0, "n": 2}
    assert by_generator(ITEMS[5:], SAID)["g"]["f1"] == 100.0
    assert by_generator(ITEMS[5:6], SAID)["g"] == {"error_acc": 100.0, "correct_acc": 0.0, "f1": 0.0, "n": 1}
