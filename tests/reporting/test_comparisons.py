"""Comparisons of systems: pairing, and the sentence that describes the difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ground.io import write_jsonl
from pathfinder.benchmarks.accuracy import by_set
from pathfinder.benchmarks.prmbench import evaluate
from pathfinder.benchmarks.readers import PRMBenchItem, ProcessBenchItem
from pathfinder.core.params import Report
from pathfinder.reporting.comparisons import Measured, System, compare, gather, on_prmbench, on_processbench, on_search
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.results import load_results

REPORT = Report(bootstrap_samples=300, seed=1)


def _items(n: int) -> list[ProcessBenchItem]:
    return [
        ProcessBenchItem(s, str(i), "p", ("a", "b"), i % 2 - 1, None, "g") for s in ("gsm8k", "math") for i in range(n)
    ]


def _systems(**measured: Measured) -> dict[str, System]:
    found = {name: gather({1: one}, REPORT) for name, one in measured.items()}
    return {name: system for name, system in found.items() if system is not None}


def test_a_clear_difference_is_described_with_its_interval_and_sign() -> None:
    items = _items(40)
    right = [{"subset": i.subset, "id": i.id, "prediction": i.label} for i in items]
    poor = [row | {"prediction": 1} if int(item.id) % 4 == 0 else row for item, row in zip(items, right, strict=True)]
    systems = _systems(A=on_processbench(items, right), B=on_processbench(items, poor))
    (found,) = compare(systems, [("A", "B")], "ProcessBench F1", REPORT)
    # B misses half of the solutions without an error: accuracies 100 and 50, F1 66.7
    assert found.difference is not None
    assert found.difference.value == pytest.approx(100 - 200 / 3)
    assert str(found).startswith("A beats B by 33.3 points [")
    assert str(found).endswith("on ProcessBench F1 (80 problems; 1 seed).")
    (swapped,) = compare(systems, [("B", "A")], "F1", REPORT)
    assert "B trails A by 33.3 points [" in str(swapped)


def test_a_share_is_the_same_figure_as_in_the_metrics() -> None:
    """31.875 of 50: 63.75 exactly if it is multiplied by 100 first, else a little less, which prints 63.7."""
    shares = [1.0] * 31 + [0.875] + [0.0] * 18
    rows = [{"set": "olympiadbench", "id": i, "share": share} for i, share in enumerate(shares)]
    (found,) = on_search(rows, "share").statistic(np.arange(50)[None])
    _, average, _ = by_set(["olympiadbench"] * 50, shares, REPORT)
    assert found == average
    assert f"{found:.1f}" == "63.8"


def test_equal_systems_do_not_differ_and_missing_ones_are_left_out() -> None:
    rows = [{"set": s, "id": i, "correct": i % 3 == 0} for s in ("math", "amc23") for i in range(20)]
    systems = _systems(A=on_search(rows, "correct"), B=on_search(rows, "correct"), C=on_search(rows[:9], "correct"))
    (found,) = compare(systems, [("A", "B"), ("A", "missing"), ("A", "C")], "search", REPORT)
    assert str(found) == (
        "A and B do not differ clearly on search: the difference is +0.0 [0.0, 0.0] (40 problems; 1 seed)."
    )


def test_several_seeds_are_paired_by_number_and_counted() -> None:
    def rows(wrong: int) -> list[dict[str, object]]:
        return [{"set": "math", "id": i, "correct": i >= wrong} for i in range(40)]

    a = gather({seed: on_search(rows(4 + seed), "correct") for seed in (1, 2, 3)}, REPORT)
    b = gather({seed: on_search(rows(20 + seed), "correct") for seed in (3, 2, 1)}, REPORT)
    control = gather({1: on_search(rows(30), "correct")}, REPORT, is_trained=False)
    lone = gather({2: on_search(rows(30), "correct")}, REPORT)
    assert a is not None
    assert b is not None
    assert control is not None
    assert lone is not None
    assert a.seeds == b.seeds == (1, 2, 3)
    assert control.seeds == ()
    systems = {"A": a, "B": b, "C": control, "D": lone}
    found = compare(systems, [("A", "B"), ("A", "C"), ("A", "D")], "search", REPORT)
    assert found[0].difference is not None
    assert found[0].difference.value == pytest.approx(40)
    assert [str(one).rsplit("; ", 1)[1] for one in found] == ["3 seeds).", "3 seeds).", "3 seeds and 1 seed)."]
    assert a.level(REPORT).value == pytest.approx(100 * (1 - 6 / 40))
    assert gather({}, REPORT) is None


def test_an_interval_of_a_difference_has_no_impossible_end() -> None:
    def system(seeds: int, right: int) -> System:
        runs = {
            seed: on_search([{"set": "math", "id": i, "correct": i < right - seed} for i in range(40)], "correct")
            for seed in range(seeds)
        }
        found = gather(runs, REPORT, is_trained=seeds > 1)
        assert found is not None
        return found

    (one,) = compare({"A": system(3, 41), "B": system(1, 0)}, [("A", "B")], "search", REPORT)
    assert one.difference is not None
    assert 0 < one.difference.low < one.difference.value < one.difference.high == 100
    level = system(3, 41).level(REPORT)
    assert 0 < level.low < level.value < level.high == 100


def test_prmscore_over_all_items_equals_the_metric() -> None:
    items = [PRMBenchItem(f"circular_{i}", "circular", "p", ("a", "b", "c"), (1 + i % 4,)) for i in range(12)]
    items += [PRMBenchItem(f"correct_{i}", "correct", "p", ("a",), ()) for i in range(3)]
    labels = {item.idx: [(place + int(item.idx[-1])) % 3 > 0 for place in range(len(item.steps))] for item in items}
    rows = [{"idx": idx, "scores": {"step_level_validity_labels": given}} for idx, given in labels.items()]
    measured = on_prmbench(items, rows)
    assert measured.statistic(np.arange(12)) == pytest.approx(evaluate(items, labels)["overall"])


def test_prmbench_rows_are_read_as_grade_reads_them() -> None:
    """Without a row: left out. Invalid: no answer. Redundancy labels replace missing labels; none is after the end."""
    items = [PRMBenchItem(f"{name}_1", name, "q", ("a", "b"), (2,)) for name in ("confidence", "circular", "deception")]
    rows: list[dict[str, Any]] = [
        {"idx": "circular_1", "scores": {"step_level_validity_labels": [], "step_level_redundancy_labels": [0, 1, 1]}},
        {"idx": "deception_1", "validity": False},
    ]
    measured = on_prmbench(items, rows)
    assert measured.keys == ("circular_1", "deception_1")
    assert measured.statistic(np.array([0])) == 100.0
    assert measured.statistic(np.array([0, 1])) == 100.0, "unanswered items have no counts"
    assert measured.statistic(np.array([1])) == 0.0


def test_the_candidates_of_a_search_are_not_kept_in_memory(tmp_path: Path) -> None:
    """Fails if a report needs gigabytes for the searches of several seeds."""
    row = {"set": "math", "id": "1", "correct": True, "iteration_history": [{"candidates": ["x"]}]}
    write_jsonl(tmp_path / "search/random.jsonl", [row])
    evidence = Evidence(load_results(tmp_path / "metrics", ()), tmp_path, tmp_path / "raw", REPORT)
    assert evidence.rows("search/random.jsonl") == [{"set": "math", "id": "1", "correct": True}]
