"""The frame on two small benchmarks: answers, rows, metrics and the headline of any system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ground.io import DataError, read_json
from pathfinder.benchmarks import prmbench, processbench
from pathfinder.benchmarks.evaluation import PRMBenchEvaluation, ProcessBenchEvaluation, read_evaluation
from pathfinder.benchmarks.grade import grade
from pathfinder.benchmarks.metrics import ProcessBench
from pathfinder.benchmarks.readers import read_prmbench, read_processbench
from pathfinder.core.params import Report
from pathfinder.core.steps import Verdicts

REPORT = Report(bootstrap_samples=50, seed=1)
STEPS = ["a", "b", "c"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both benchmarks in one folder; the current folder is another."""
    labels = [0, 1, 2, -1, -1, 1]
    rows = [{"id": f"math-{i}", "problem": "p", "steps": STEPS, "label": label} for i, label in enumerate(labels)]
    (tmp_path / "math.json").write_text(json.dumps(rows))
    classes = ["circular", "deception", "redundency"]
    typed = [
        {"idx": str(i), "classification": classes[i % 3], "modified_question": "q", "modified_process": STEPS}
        | {"original_question": "o", "original_process": ["x"], "error_steps": [1 + i % 3]}
        for i in range(6)
    ]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in typed))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


FINE = Verdicts([True] * 3)


def verdicts(count: int) -> list[Verdicts]:
    """Verdicts on three steps per item: no error, an error at each place, and no answer, in turn."""
    choices = [[True] * 3, [False, True, True], [True, False, False], [True, True, False], []]
    return [Verdicts(choices[place % 5]) for place in range(count)]


def test_processbench_answers_rows_and_metrics(folder: Path) -> None:
    evaluation = ProcessBenchEvaluation(read_processbench(folder))
    answers = {"soundness": evaluation.answers(verdicts(6)), "quality": evaluation.answers([FINE] * 6)}
    assert answers["soundness"] == [-1, 0, 1, 2, None, -1]
    rows = evaluation.rows(answers, [{"votes": place} for place in range(6)])
    keys = ["subset", "id", "prediction", "prediction_quality", "label", "votes"]
    assert list(rows[2]) == keys
    assert list(rows[2].values()) == ["math", "math-2", 1, -1, 2, 2]
    metrics = evaluation.metrics(answers, REPORT).as_json()
    by_key = {item.key: answer for item, answer in zip(evaluation.items, answers["soundness"], strict=True)}
    figures = processbench.with_interval(evaluation.items, by_key, REPORT)
    assert metrics["readings"]["soundness"] == figures
    assert metrics["readings"]["quality"] != figures
    assert figures.items() <= metrics.items(), "the first rule is the main one"
    assert metrics["baselines"] == processbench.trivial_predictors(evaluation.items, REPORT)
    assert metrics["generators"] == processbench.by_generator(evaluation.items, by_key)
    assert (metrics["read"], metrics["kept"], metrics["defects"]) == (6, 6, evaluation.loaded.defects)
    summary = evaluation.summary(answers["soundness"], REPORT).as_json()
    shared = {name: value for name, value in metrics.items() if name not in ("readings", "baselines")}
    assert summary == shared | {"reading": "soundness"}
    assert evaluation.official(answers["soundness"]).as_json() == processbench.evaluate(
        evaluation.items, by_key, "official"
    )


def test_prmbench_answers_rows_and_metrics(folder: Path) -> None:
    evaluation = PRMBenchEvaluation(read_prmbench(folder))
    count = len(evaluation.items)
    answers = {"authors": evaluation.answers(verdicts(count)), "benchmark": evaluation.answers([FINE] * count)}
    assert answers["authors"] == [given if given.correct else None for given in verdicts(count)]
    rows = evaluation.rows(answers, [{"steps": []}] * count)
    key = "step_level_validity_labels"
    answered, silent = rows[1], rows[4]
    assert list(answered) == ["idx", "classification", "scores", "steps"]
    assert answered["scores"] == {key: [False, True, True], f"{key}_benchmark": [True] * 3}
    assert list(silent) == ["idx", "classification", "scores", "steps", "validity"]
    assert (silent["scores"], silent["validity"]) == ({f"{key}_benchmark": [True] * 3}, False)
    metrics = evaluation.metrics(answers, REPORT, "rules").as_json()
    pairs = zip(evaluation.items, answers["authors"], strict=True)
    by_key = {item.key: answer.correct if answer else None for item, answer in pairs}
    figures = prmbench.with_interval(evaluation.items, by_key, REPORT)
    assert figures.items() <= metrics.items()
    assert list(metrics["rules"]) == ["authors", "benchmark"]
    assert metrics["details"]["defects"]["invalid"] == 1
    assert metrics["baselines"] == prmbench.trivial_predictors(evaluation.items, REPORT)
    assert "generators" not in metrics
    official = evaluation.official(answers["authors"]).as_json()
    assert set(official) == {"classes", "categories", "overall"}


def test_redundancy_decides_its_classes_in_every_form(folder: Path) -> None:
    """The metrics, the prediction file and its grading use verdicts on redundancy in two classes, and only there."""
    evaluation = PRMBenchEvaluation(read_prmbench(folder))
    count = len(evaluation.items)
    given = Verdicts([True] * 3, [True, False, False])
    answers = {"benchmark": evaluation.answers([given] * count), "authors": evaluation.answers([FINE] * count)}
    wanted = {
        item.key: [False, True, True] if item.classification in ("circular", "redundency") else [True] * 3
        for item in evaluation.items
    }
    assert evaluation.by_key(answers["benchmark"]) == wanted
    assert evaluation.by_key(answers["authors"]) == dict.fromkeys(wanted, [True] * 3)
    rows = evaluation.rows(answers, [{}] * count)
    names = [f"step_level_{kind}_labels" for kind in ("validity", "redundancy")]
    assert rows[0]["scores"] == {
        names[0]: [True] * 3,
        names[1]: [True, False, False],
        f"{names[0]}_authors": [True] * 3,
    }
    metrics = evaluation.metrics(answers, REPORT, "rules")
    assert metrics.headline == prmbench.with_interval(evaluation.items, wanted, REPORT)["overall"]
    assert metrics.headline != metrics.rules["authors"].headline
    evaluation.write("full", rows, metrics)
    graded = grade("prmbench", Path("artifacts/predictions/prmbench/full.jsonl"), folder)
    assert graded["overall"] == pytest.approx(metrics.headline)


@pytest.mark.parametrize("benchmark", ["processbench", "prmbench"])
def test_written_predictions_grade_to_the_written_metrics(folder: Path, benchmark: Any) -> None:
    evaluation = read_evaluation(benchmark, folder)
    answers: dict[str, list[Any]] = {"soundness": evaluation.answers(verdicts(len(evaluation.items)))}
    rows = evaluation.rows(answers, [{}] * len(evaluation.items))
    evaluation.write("full", rows, evaluation.metrics(answers, REPORT))
    metrics = read_json(Path("metrics", benchmark, "full.json"))
    graded = grade(benchmark, Path("artifacts/predictions", benchmark, "full.jsonl"), folder)
    assert graded[evaluation.headline_key] == pytest.approx(metrics[evaluation.headline_key])


def test_items_and_limits_are_the_readers(folder: Path) -> None:
    assert len(read_evaluation("processbench", folder, 2).items) == 2
    items = read_evaluation("prmbench", folder, 1).items
    assert [item.id for item in items] == ["circular_0", "deception_1", "correct_2", "redundency_2"]
    with pytest.raises(DataError, match="ProcessBench folder"):
        read_evaluation("processbench", folder / "project")


def test_answers_and_columns_must_match_the_items(folder: Path) -> None:
    evaluation = ProcessBenchEvaluation(read_processbench(folder))
    with pytest.raises(ValueError, match="shorter"):
        evaluation.metrics({"soundness": [0]}, REPORT)
    with pytest.raises(ValueError, match="shorter"):
        evaluation.rows({"soundness": [0] * 6}, [{}])


def test_headline(folder: Path) -> None:
    evaluation = read_evaluation("processbench", folder)
    metrics = ProcessBench(mean_f1=50.04, interval=[40, 60.06])
    assert evaluation.headline("full", metrics) == "processbench full: mean F1 50.0 [40.0, 60.1]"
    rules = {"soundness": ProcessBench(mean_f1=50.04), "quality": ProcessBench(mean_f1=48)}
    given: dict[str, Any] = {"reading": "soundness", "readings": rules, "published": {"mean_f1": 69.5}}
    metrics = ProcessBench(mean_f1=50.04, interval=[40, 60.06], **given)
    line = "processbench full: mean F1 by soundness 50.0 [40.0, 60.1] (quality 48.0, paper 69.5)"
    assert evaluation.headline("full", metrics) == line
