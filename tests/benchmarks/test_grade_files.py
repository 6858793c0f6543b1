"""Any prediction file, graded as official, against the published definitions rewritten row by row."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ground.io import DataError
from pathfinder.benchmarks.grade import grade, notes
from pathfinder.benchmarks.readers import CLASSES, SUBSETS

RUNS = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
BITS = st.lists(st.sampled_from([True, False, 0, 1]), max_size=5)


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def prmbench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every class three times, with error steps past the end, an empty step, and ids that repeat."""
    folder = tmp_path_factory.mktemp("prm")
    rows = []
    for place, name in enumerate(CLASSES):
        for at in (0, 1, 2, 1):
            steps = ["a", "", "c", "d"][: 1 + (place + at) % 4]
            errors = [] if name == "multi_solutions" else [1 + at, 5][: 1 + place % 2]
            rows.append(
                {
                    "idx": f"n_{at}",
                    "classification": name,
                    "original_question": "q",
                    "original_process": ["x", "y"],
                    "modified_question": "q",
                    "modified_process": steps,
                    "error_steps": errors,
                }
            )
    lines(folder / "a.jsonl", rows)
    return folder


def items_of(folder: Path) -> dict[str, tuple[str, list[int]]]:
    """As the published loader: the first row of an id; each redundancy row also yields its original as correct."""
    found: dict[str, tuple[str, list[int]]] = {}
    for line in (folder / "a.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["classification"] == "redundency":
            found.setdefault(f"correct_{row['idx']}", ("correct", []))
        found.setdefault(f"{row['classification']}_{row['idx']}", (row["classification"], row["error_steps"]))
    return found


def published(items: dict[str, tuple[str, list[int]]], rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Figures of each class and of "total" by the published evaluator's rules, including -1."""
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["idx"] in items:
            first.setdefault(row["idx"], row)
    hits: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    cells: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    correct: dict[str, float] = {}
    for wanted in (True, False):
        for idx, row in first.items():
            name, errors = items[idx]
            if (name == "correct") != wanted or ("validity" in row and not row["validity"]):
                continue
            scores = row["scores"]
            labels = list(scores["step_level_validity_labels"])
            if name in ("redundency", "circular") and "step_level_redundancy_labels" in scores:
                labels = [not label for label in scores["step_level_redundancy_labels"]]
            wrong = [step - 1 for step in errors]
            mean = sum(labels) / len(labels) if labels else -1
            for into in [name] if wanted else [name, "total"]:
                for place, label in enumerate(labels):
                    right = (label == 1) != (place in wrong)
                    cells[into][("T" if right else "F") + ("P" if label == 1 else "N")] += 1
                    hits[into]["wrong_step_acc" if place in wrong else "correct_step_acc"].append(right)
                    hits[into]["total_step_acc"].append(right)
                    if wrong and place == min(wrong):
                        hits[into]["first_error_acc"].append(label != 1)
                mate = correct.get(f"correct_{idx[len(name) + 1 :]}")
                if not wanted and mate and mean != -1:
                    hits[into]["similarity"].append(abs(mean - mate))
            if wanted:
                correct[idx] = mean

    def share(part: int, whole: int) -> float:
        return part / whole if whole else -1

    def f1(precision: float, recall: float) -> float:
        return 2 * precision * recall / (precision + recall) if precision + recall != 0 else -1

    figures: dict[str, dict[str, float]] = {}
    for name in {name for name, _ in items.values()} | {"total"}:
        c = cells[name]
        p, r = share(c["TP"], c["TP"] + c["FP"]), share(c["TP"], c["TP"] + c["FN"])
        n, s = share(c["TN"], c["TN"] + c["FN"]), share(c["TN"], c["TN"] + c["FP"])
        figures[name] = {"precision": p, "recall": r, "f1": f1(p, r)}
        figures[name] |= {"negative_precision": n, "negative_recall": s, "negative_f1": f1(n, s)}
        for kind in ("correct_step_acc", "wrong_step_acc", "total_step_acc", "first_error_acc", "similarity"):
            found = hits[name][kind]
            figures[name][kind] = sum(found) / len(found) if found else -1
    return figures


@RUNS
@given(st.data())
def test_prmbench_official_is_the_published_evaluator(prmbench: Path, tmp_path: Path, data: st.DataObject) -> None:
    items = items_of(prmbench)
    rows = []
    for idx in data.draw(st.permutations(list(items))):
        row: dict[str, Any] = {"idx": idx, "scores": {"step_level_validity_labels": data.draw(BITS)}}
        if data.draw(st.integers(0, 3)) == 0:
            row["scores"]["step_level_redundancy_labels"] = data.draw(BITS)
        if data.draw(st.integers(0, 3)) == 0:
            row["validity"] = data.draw(st.sampled_from([True, False, None, 0, 1]))
        rows.append(row)
    rows += data.draw(st.lists(st.sampled_from(rows), max_size=4))
    rows.append({"idx": "circular_unknown", "scores": {"step_level_validity_labels": [True]}})
    gone = set(data.draw(st.lists(st.sampled_from(list(items)), max_size=4)))
    rows = [row for row in rows if row["idx"] not in gone]
    expected = published(items, rows)
    found = grade("prmbench", lines(tmp_path / "p.jsonl", rows), prmbench, "official")
    for name, figures in expected.items():
        mine = found["details"]["total"] if name == "total" else found["details"]["classes"][name]
        assert {k: mine[k] for k in figures} == pytest.approx(figures, abs=1e-9), name
    halves = {name: 50 * (figures["f1"] + figures["negative_f1"]) for name, figures in expected.items()}
    halves["multi_solutions"] = 100 * expected["multi_solutions"]["f1"]
    assert found["classes"] == pytest.approx({name: halves[name] for name in CLASSES}, abs=1e-9)
    assert found["overall"] == pytest.approx(halves["total"], abs=1e-9)
    groups = {
        "simplicity": ("redundency", "circular"),
        "soundness": ("counterfactual", "step_contradiction", "domain_inconsistency", "confidence"),
        "sensitivity": ("missing_condition", "deception", "multi_solutions"),
    }
    means = {name: sum(halves[c] for c in members) / len(members) for name, members in groups.items()}
    assert found["categories"] == pytest.approx(means, abs=1e-9)


def test_the_files_defects_are_counted(prmbench: Path, tmp_path: Path) -> None:
    rows = [{"idx": idx, "scores": {"step_level_validity_labels": [True]}} for idx in items_of(prmbench)]
    found = grade("prmbench", lines(tmp_path / "p.jsonl", [*rows, rows[0]]), prmbench)
    assert found["details"]["data"]["dropped"]["repeated_id"] == 10  # nine rows, and the original of one
    assert found["details"]["data"]["defects"]["empty_step"] > 0
    assert found["details"]["defects"]["error_step_past_end"] > 0
    assert found["details"]["defects"]["repeated"] == 1
    assert set(found) == {"classes", "categories", "overall", "details"}


def test_what_a_file_lacks_or_the_data_is_said_with_its_name(prmbench: Path, tmp_path: Path) -> None:
    row = {"idx": "circular_n_0", "scores": {"step_level_validity_labels": [True]}}
    file = lines(tmp_path / "p.jsonl", [row])
    with pytest.raises(DataError, match=r"p\.jsonl: \d+ of \d+ items have no prediction; add their rows$"):
        grade("prmbench", file, prmbench, "official")
    (tmp_path / "data").mkdir()
    lines(tmp_path / "data/math.jsonl", [{"problem": "p", "answer": "1"}])
    lines(file, [{"question": "p", "pred_answer": "1", "set": "aime24"}])
    with pytest.raises(DataError, match=r"p\.jsonl: rows of aime24, which is not in .*data; add aime24\.jsonl"):
        grade("search", file, tmp_path / "data")


PREDICTED = st.one_of(st.none(), st.integers(-3, 9), st.integers(-1, 4).map(float))


@RUNS
@given(
    st.lists(st.tuples(st.sampled_from(SUBSETS), st.integers(-1, 3), PREDICTED, st.booleans()), min_size=1, max_size=30)
)
def test_processbench_official_is_the_published_arithmetic(
    tmp_path: Path, rows: list[tuple[str, int, Any, bool]]
) -> None:
    said, items = [], defaultdict(list)
    for at, (subset, label, prediction, named) in enumerate(rows):
        items[subset].append({"id": f"{subset}-{at}", "problem": "p", "steps": ["a"] * 4, "label": label})
        row = {"subset": subset, "id": f"{subset}-{at}", "prediction": prediction}
        said.append(row if named else {k: v for k, v in row.items() if k != "subset"})
    folder = tmp_path / "pb"
    folder.mkdir(exist_ok=True)
    for name in SUBSETS:
        (folder / f"{name}.json").unlink(missing_ok=True)
        if name in items:
            (folder / f"{name}.json").write_text(json.dumps(items[name]))
    found = grade("processbench", lines(tmp_path / "p.jsonl", said), folder, "official")
    assert found["subsets"].keys() == {subset for subset, *_ in rows}
    means = []
    for name, mine in found["subsets"].items():
        pairs = [(label, prediction) for subset, label, prediction, _ in rows if subset == name]
        with np.errstate(invalid="ignore"):
            error, correct = (
                100 * np.divide(sum(p == label for label, p in kind), len(kind)) if kind else math.nan
                for kind in ([x for x in pairs if x[0] != -1], [x for x in pairs if x[0] == -1])
            )
            f1 = 2 * error * correct / (error + correct) if error + correct else math.nan
        for key, value in (("error_acc", error), ("correct_acc", correct), ("f1", f1)):
            assert mine[key] is None if math.isnan(value) else mine[key] == pytest.approx(value, abs=1e-9)
        means.append(f1)
    mean = sum(means) / len(means)
    assert found["mean_f1"] is None if math.isnan(mean) else found["mean_f1"] == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize("row", [{"subset": "math", "id": "m"}, {"subset": "math", "id": "m", "prediction": 1.5}])
def test_a_row_without_a_place_is_named(tmp_path: Path, row: dict[str, Any]) -> None:
    (tmp_path / "math.json").write_text(json.dumps([{"id": "m", "problem": "p", "steps": ["a"], "label": 0}]))
    with pytest.raises(DataError, match="row 1: expected subset, id and a whole or null prediction"):
        grade("processbench", lines(tmp_path / "p.jsonl", [row]), tmp_path)


def test_unknown_ids_are_refused_and_subsets_without_a_row_are_noted(tmp_path: Path) -> None:
    for subset in ("math", "gsm8k"):
        items = [{"id": f"{subset}-1", "problem": "p", "steps": ["a"], "label": 0}]
        (tmp_path / f"{subset}.json").write_text(json.dumps(items))
    row = {"subset": "math", "id": "other", "prediction": 0}
    with pytest.raises(DataError, match="no row's id is one of"):
        grade("processbench", lines(tmp_path / "p.jsonl", [row]), tmp_path)
    found = grade("processbench", lines(tmp_path / "p.jsonl", [row | {"id": "math-1"}]), tmp_path)
    assert found["details"]["subsets_left_out"] == ["gsm8k", "olympiadbench", "omnimath"]
    assert "subsets missing in the file or the data (the mean is over the others): 3" in notes(
        "processbench", found, "repaired"
    )


def test_predictions_that_name_no_step_are_noted(tmp_path: Path) -> None:
    rows = [{"id": f"math-{n}", "problem": "p", "steps": ["a", "b"], "label": 1} for n in range(4)]
    lines(tmp_path / "math.json", rows)
    said = [{"id": f"math-{n}", "prediction": step} for n, step in enumerate((-7, 2, 1, -1))]
    found = grade("processbench", lines(tmp_path / "p.jsonl", said), tmp_path)
    assert "predictions that name no step (wrong): 2" in notes("processbench", found, "repaired")


def test_a_number_is_an_answer_and_missing_sets_are_noted(tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    lines(tmp_path / "search/math.jsonl", [{"problem": f"{n}?", "answer": "25"} for n in range(3)])
    said = [{"question": f"{n}?", "pred_answer": answer} for n, answer in enumerate((25, 25.0, 24))]
    found = grade("search", lines(tmp_path / "p.jsonl", said), tmp_path)  # the folder that holds ``search``
    assert found["sets"] == {"math": pytest.approx(200 / 3)}
    assert notes("search", found, "repaired") == ["sets missing in the file (the average is over the others): 5"]
