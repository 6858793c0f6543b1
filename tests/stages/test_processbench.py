"""The stage on the small world with an untrained PRM: rows, accounting, repeatable bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ground.io import read_json
from pathfinder.benchmarks.grade import grade
from pathfinder.core.steps import StepScore
from pathfinder.models.tokens import label_ids
from pathfinder.prm.evaluate import until_all, verdicts
from stages.processbench import main
from tests.prm.test_scoring import save_prm
from tests.support.evaluation_inputs import evaluation_project, rows_of


@pytest.mark.parametrize("variant", ["full", "no_subtasks"])
def test_stage(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    evaluation_project(tmp_path, world, processbench={"limit": 6})
    monkeypatch.chdir(tmp_path)
    main([variant])
    predictions = Path(f"artifacts/predictions/processbench/{variant}.jsonl")
    metrics = read_json(Path(f"metrics/processbench/{variant}.json"))
    rows = rows_of(predictions)
    assert len(rows) == metrics["kept"] == 24
    assert metrics["read"] == metrics["kept"] + metrics["dropped"]["limit"]
    main_reading = "quality" if variant == "no_subtasks" else "soundness"
    assert metrics["reading"] == main_reading
    assert set(metrics["readings"]) == {main_reading, "quality"}
    assert metrics["readings"][main_reading] == {k: metrics[k] for k in ("subsets", "mean_f1", "interval")}
    assert set(metrics["baselines"]) == {"chance", "majority", "first_step"}
    for row in rows:
        labels = ("reward",) if variant == "no_subtasks" else ("math", "consistency")
        wrong = [min(step[label] for label in labels) < 0.5 for step in row["steps"]]
        assert row["prediction"] == (wrong.index(True) if True in wrong else -1)
        assert (row["steps"][0]["math"] is None) == (variant == "no_subtasks")
    graded = grade("processbench", predictions, Path("artifacts/raw/processbench"))
    assert graded["details"]["unknown_id"] == 0
    assert graded["subsets"]["gsm8k"]["n_error"] > metrics["subsets"]["gsm8k"]["n_error"], "all items, not six"
    before = predictions.read_bytes(), Path(f"metrics/processbench/{variant}.json").read_bytes()
    main([variant])
    assert before == (predictions.read_bytes(), Path(f"metrics/processbench/{variant}.json").read_bytes())


def test_the_official_preset_reads_the_same_labels(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PRM whose likeliest token is always one of the labels: the published runner refuses any other."""
    found = {}
    for preset in ("default", "official"):
        evaluation_project(tmp_path / preset, world, processbench={"preset": preset, "limit": 12})
        monkeypatch.chdir(tmp_path / preset)
        prefer_labels(Path("models/full"))
        main(["full"])
        metrics = read_json(Path("metrics/processbench/full.json"))
        found[preset] = metrics, rows_of(Path("artifacts/predictions/processbench/full.jsonl"))
    (default, rows), (official, published) = found["default"], found["official"]
    assert default["readings"] == official["readings"]
    assert default["official"] == official["official"]
    assert default["readings"]["quality"]["mean_f1"] != default["readings"]["soundness"]["mean_f1"]
    assert official["mean_f1"] == default["mean_f1"] == default["readings"]["soundness"]["mean_f1"]
    for key in ("prediction", "prediction_quality"):
        assert [row[key] for row in rows] == [row[key] for row in published]
    for subset, same in default["readings"]["soundness"]["subsets"].items():
        mine = official["official"]["subsets"][subset]
        for key in ("error_acc", "correct_acc", "f1"):
            assert (mine[key] or 0.0) == same[key], "undefined as published over no solution and for two zeros"


def prefer_labels(folder: Path) -> None:
    """Save a random PRM in which every output row except the rows of the two labels, which are opposite, is zero."""
    model, tokenizer = save_prm(folder)
    ids = label_ids(tokenizer)
    with torch.no_grad():
        row = model.lm_head.weight[ids.good].clone()
        model.lm_head.weight.zero_()
        model.lm_head.weight[ids.good], model.lm_head.weight[ids.bad] = row, -row
    model.save_pretrained(folder)


def test_an_early_stop_changes_no_figure(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers of an untrained PRM are as good as random, so solutions stop at every place."""
    found = {}
    for early_stop in (False, True):
        folder = tmp_path / str(early_stop)
        evaluation_project(folder, world, processbench={"limit": 24, "early_stop": early_stop})
        monkeypatch.chdir(folder)
        main(["full"])
        rows = rows_of(Path("artifacts/predictions/processbench/full.jsonl"))
        found[early_stop] = read_json(Path("metrics/processbench/full.json")), rows
    (whole, every), (stopped, fewer) = found[False], found[True]
    assert "early_stop" not in whole
    assert "thresholds" not in stopped
    counts = stopped.pop("early_stop")
    del whole["thresholds"]
    assert stopped == whole
    steps, scored = (sum(len(row["steps"]) for row in rows) for rows in (every, fewer))
    assert counts == {"steps": steps, "scored": scored}
    assert scored < steps
    for whole_row, part in zip(every, fewer, strict=True):
        last = part["steps"][-1]
        assert len(part["steps"]) == len(whole_row["steps"]) or last["reward"] < 0.5 or last["math"] < 0.5
        for key in ("id", "prediction", "prediction_quality"):
            assert part[key] == whole_row[key]
        for stopped_step, step in zip(part["steps"], whole_row["steps"], strict=False):
            assert stopped_step["reward"] == pytest.approx(step["reward"], abs=1e-5)


CORRECT = StepScore({"math": 0.9, "consistency": 0.9}, 0.8)
MATH_ERROR = StepScore({"math": 0.4, "consistency": 0.9}, 0.7)
LOW_REWARD = StepScore({"math": 0.9, "consistency": 0.9}, 0.2)


def test_a_solution_ends_when_every_reading_has_found_an_error() -> None:
    stop = until_all(2)
    first = [stop(0, step) for step in (CORRECT, MATH_ERROR, MATH_ERROR, LOW_REWARD)]
    second = [stop(1, step) for step in (LOW_REWARD, CORRECT, MATH_ERROR)]
    assert (first, second) == ([False, False, False, True], [False, False, True])


def test_readings() -> None:
    ((sound,), (useful,)) = (verdicts([[CORRECT, MATH_ERROR, LOW_REWARD]], each) for each in ("soundness", "quality"))
    assert (sound.correct, useful.correct) == ([True, False, True], [True, True, False])
    assert all(verdicts([[StepScore({}, 0.5)]], each)[0].correct == [True] for each in ("soundness", "quality"))
