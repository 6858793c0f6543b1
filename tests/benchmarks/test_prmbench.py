"""PRMBench's metric by hand, in its degenerate cases, and against the published evaluator's definitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ground.io import DataError
from pathfinder.bench.rows import Paper, judged_rows
from pathfinder.benchmarks.bootstrap import resamples
from pathfinder.benchmarks.evaluation import PRMBenchEvaluation
from pathfinder.benchmarks.prmbench import (
    VALIDITY,
    by_problem,
    evaluate,
    labels_of,
    scores,
    step_counts,
    trivial_predictors,
    with_interval,
)
from pathfinder.benchmarks.readers import CORRECT, Loaded, PRMBenchItem, read_prmbench
from pathfinder.core.params import Report
from pathfinder.core.steps import Verdicts
from pathfinder.reporting.comparisons import gather, on_prmbench

REPORT = Report(bootstrap_samples=100, seed=1)


def item(name: str, idx: str, steps: int, errors: tuple[int, ...]) -> PRMBenchItem:
    return PRMBenchItem(f"{name}_{idx}", name, "q", tuple("s" * steps), errors)


def test_by_hand() -> None:
    """circular: steps 2 and 3 of 4 are wrong, 2 and 4 predicted so: TP 1, FP 1, TN 1, FN 1, both F1 1/2."""
    items = [item("circular", "a", 4, (2, 3)), item("multi_solutions", "b", 3, ())]
    predictions = {"circular_a": [True, False, True, False], "multi_solutions_b": [True, True, False]}
    found = evaluate(items, predictions)
    assert found["classes"] == pytest.approx({"circular": 50.0, "multi_solutions": 80.0})  # 2 * 2 / (2 * 2 + 1)
    # pooled TP 3, FP 1, TN 1, FN 2: F1 6/9, negative F1 2/5
    assert found["overall"] == pytest.approx(100 * (6 / 9 + 2 / 5) / 2)
    assert found["categories"] == {}  # no redundency, so no mean of simplicity
    total = found["details"]["total"]
    assert (total["TP"], total["FP"], total["TN"], total["FN"]) == (3, 1, 1, 2)
    assert total["first_error_acc"] == 1.0
    assert total["wrong_step_acc"] == 0.5
    assert total["correct_step_acc"] == pytest.approx(3 / 5)
    assert total["total_step_acc"] == pytest.approx(4 / 7)


def test_categories_are_plain_means() -> None:
    items = [item("redundency", "a", 2, (1,)), item("circular", "a", 2, (1,))]
    found = evaluate(items, {"redundency_a": [False, True], "circular_a": [True, False]})
    assert found["classes"] == {"redundency": 100.0, "circular": 0.0}
    assert found["categories"] == {"simplicity": 50.0}


def test_always_wrong_is_0_and_as_published_minus_100() -> None:
    items = [item("deception", str(i), 3, (2,)) for i in range(6)]
    predictions = {i.idx: [False, True, False] for i in items}
    assert evaluate(items, predictions)["classes"]["deception"] == 0.0
    assert evaluate(items, predictions)["overall"] == 0.0
    assert evaluate(items, predictions, "official")["classes"]["deception"] == -100.0


def test_a_class_over_nothing() -> None:
    items = [item("deception", "a", 3, (2,))]
    found = evaluate(items, {"deception_a": None})
    assert found["classes"]["deception"] == 0.0
    assert found["details"]["total"]["precision"] is None
    assert found["details"]["validity_rate"] == 0.0
    assert found["details"]["defects"]["invalid"] == 1
    assert evaluate(items, {"deception_a": None}, "official")["details"]["total"]["precision"] == -1


def test_defects_are_counted() -> None:
    items = [item("deception", "a", 3, (2, 7)), item("deception", "b", 3, (3,)), item("deception", "c", 1, ())]
    predictions = {"deception_a": [True] * 6, "deception_b": [False], "deception_x": [True]}
    found = evaluate(items, predictions)
    assert found["details"]["defects"] == {
        "without_prediction": 1,
        "invalid": 0,
        "unknown_id": 1,
        "steps_without_label": 2,
        "labels_without_step": 3,
        "error_step_past_end": 1,
    }
    # repaired: labels 4 to 6 of a belong to no step; official: they count as correct steps
    assert found["details"]["total"]["TP"] == 2
    assert evaluate(items, predictions, "official")["details"]["total"]["TP"] == 5


def test_a_correct_sample_without_labels_is_compared_as_published_only() -> None:
    items = [item(CORRECT, "a", 1, ()), item("redundency", "a", 1, ())]
    predictions = {"correct_a": [], "redundency_a": [True]}
    assert evaluate(items, predictions)["details"]["total"]["similarity"] is None
    assert evaluate(items, predictions, "official")["details"]["total"]["similarity"] == 2.0
    assert evaluate(items[:1], {"correct_a": [True]})["details"]["validity_rate"] == 0.0


def test_official_refuses_a_file_with_gaps() -> None:
    items = [item("deception", str(i), 1, ()) for i in range(9)]
    answers = {i.idx: [True] for i in items[:4]}
    with pytest.raises(DataError, match="5 of 9 items"):
        evaluate(items, answers, "official")
    evaluate(items, answers)


def test_interval_and_baselines() -> None:
    items = [item("deception", str(i), 5, (1 + i % 5,)) for i in range(80)]
    right = {i.idx: [place + 1 not in i.error_steps or place == 0 for place in range(5)] for i in items}
    found = with_interval(items, right, REPORT)
    assert found["interval"][0] < found["overall"] < found["interval"][1]
    counts = np.stack([step_counts(i, right[i.idx]) for i in items])
    drawn = resamples(len(items), 100, 1, ["deception"] * len(items))
    overall = [scores({"deception": counts[rows].sum(0)})["overall"] for rows in drawn]
    assert found["interval"] == pytest.approx(np.quantile(overall, [0.025, 0.975]))
    known = trivial_predictors(items, REPORT)
    assert known["majority"]["overall"] == pytest.approx(100 * (8 / 9) / 2)  # F1 2 * .8 / 1.8, negative F1 0
    assert 47 < known["chance"]["overall"] < 55  # F1 .8, negative F1 .2
    assert set(known["chance"]) == {"classes", "categories", "overall", "interval"}
    assert trivial_predictors(items, REPORT) == known
    assert known["coin"]["interval"][0] < known["coin"]["overall"] < known["coin"]["interval"][1]


def test_labels_are_those_of_a_rows_scores() -> None:
    given = {"step_level_validity_labels": [1, 0, True], "step_level_redundancy_labels": [0, 1]}
    row = {"scores": given}
    assert labels_of("a", row, "deception") == [True, False, True]
    assert labels_of("a", row, "redundency") == labels_of("a", row, "circular") == [True, False]
    for validity, labels in ((True, [True, False, True]), (False, None), (None, None)):
        assert labels_of("a", row | {"validity": validity}, "deception") == labels
    del given["step_level_redundancy_labels"]
    assert labels_of("a", row, "circular") == [True, False, True]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"scores": [1]},
        {"scores": {"step_level_validity_labels": 1}},
        {"scores": {"step_level_validity_labels": [2]}},
        {"scores": {"step_level_validity_labels": [1]}, "validity": "no"},
    ],
)
def test_malformed_rows_are_named(row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"^a\.jsonl: row 3: .*(Correct|remove)"):
        labels_of("a.jsonl: row 3", row, "deception")


def test_solutions_of_one_problem_are_drawn_together() -> None:
    """Fails if rewrites of one solution count as evidence of their own: the copies of all items say nothing new."""
    names = ("circular", "deception", "confidence")
    single, loaded = (
        [replace(item(name, str(at), 3, (1 + at % 2,)), origin=f"q {at}") for at in range(60) for name in mine]
        for mine in (names[:1], names)
    )
    labels = {i.idx: [int(i.idx.rpartition("_")[2]) % 3 > 0, True, False] for i in loaded}
    expected, found = (with_interval(items, labels, REPORT) for items in (single, loaded))
    assert (found["overall"], found["interval"]) == (expected["overall"], expected["interval"])
    rows = [{"idx": idx, "scores": {VALIDITY: given}} for idx, given in labels.items()]
    systems = [gather({1: on_prmbench(items, rows)}, REPORT) for items in (single, loaded)]
    assert [system and (len(system.keys), system.problems) for system in systems] == [(60, 60), (180, 60)]
    assert len({system and system.replicates.tobytes() for system in systems}) == 1
    evaluations = [PRMBenchEvaluation(Loaded(items, len(items), {}, {})) for items in (single, loaded)]
    given = [[Verdicts(labels[i.idx]) for i in evaluation.items] for evaluation in evaluations]
    first, *others = (
        list(judged_rows(evaluation, "", answers, Paper(), subsets=True))
        for evaluation, answers in zip(evaluations, given, strict=True)
    )
    assert {row.subset for row in others[0]} == {"all", *names}
    assert len({(row.value, row.low, row.high) for row in (*first, *others[0])}) == 1


def test_the_original_problem_of_an_item_is_known(mirror: Path) -> None:
    items = [i for i in read_prmbench(mirror / "prmbench").items if i.classification != CORRECT]
    assert len({i.origin for i in items}) < 0.4 * len(items)
    counts, strata = by_problem(items, [step_counts(i, [True] * len(i.steps)) for i in items])
    assert counts.sum() == sum(len(i.steps) for i in items)
    assert len(counts) == len(strata) == len({i.origin for i in items})
    assert {*strata} == {"", *(i.classification for i in items)}
