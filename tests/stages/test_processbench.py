"""The stage on the shipped world, with an untrained PRM: shapes, accounting, the same bytes again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pathfinder.benchmarks.grade import grade
from pathfinder.core.io import read_json
from pathfinder.prm.scoring import StepScore
from stages.processbench import first_error, main, until_both
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
    assert metrics["rules"]["both"] == {k: metrics[k] for k in ("subsets", "mean_f1", "interval")}
    assert set(metrics["baselines"]) == {"chance", "majority", "first_step"}
    for row in rows:
        wrong = [step["reward"] < 0.5 for step in row["steps"]]
        assert row["prediction"] == (wrong.index(True) if True in wrong else -1)
        assert (row["steps"][0]["math"] is None) == (variant == "no_subtasks")
    graded = grade("processbench", predictions, Path("artifacts/raw/processbench"))
    assert graded["details"]["unknown_id"] == 0
    assert graded["subsets"]["gsm8k"]["n_error"] > metrics["subsets"]["gsm8k"]["n_error"], "all items, not six"
    before = predictions.read_bytes(), Path(f"metrics/processbench/{variant}.json").read_bytes()
    main([variant])
    assert before == (predictions.read_bytes(), Path(f"metrics/processbench/{variant}.json").read_bytes())


def test_an_early_stop_changes_no_figure(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An untrained PRM: its answers are as good as random, so that solutions stop at every place."""
    found = {}
    for early_stop in (False, True):
        folder = tmp_path / str(early_stop)
        evaluation_project(folder, world, processbench={"limit": 20, "early_stop": early_stop})
        monkeypatch.chdir(folder)
        main(["full"])
        rows = rows_of(Path("artifacts/predictions/processbench/full.jsonl"))
        found[early_stop] = read_json(Path("metrics/processbench/full.json")), rows
    (whole, every), (stopped, fewer) = found[False], found[True]
    assert "early_stop" not in whole
    assert "thresholds" not in stopped
    told = stopped.pop("early_stop")
    del whole["thresholds"]
    assert stopped == whole
    assert told == {"steps": sum(len(row["steps"]) for row in every), "scored": sum(len(row["steps"]) for row in fewer)}
    assert told["scored"] < told["steps"]
    for all_of_it, part in zip(every, fewer, strict=True):
        last = part["steps"][-1]
        assert len(part["steps"]) == len(all_of_it["steps"]) or last["reward"] < 0.5 or last["math"] < 0.5
        for key in ("id", "prediction", "prediction_pass1"):
            assert part[key] == all_of_it[key]
        for one, other in zip(part["steps"], all_of_it["steps"], strict=False):
            assert one["reward"] == pytest.approx(other["reward"], abs=1e-5)


def test_a_solution_ends_where_both_rules_have_found_an_error() -> None:
    sound, doubtful, bad = (
        StepScore(0.9, 0.9, None, 0.8),
        StepScore(0.4, 0.9, None, 0.7),
        StepScore(0.9, 0.9, None, 0.2),
    )
    stop = until_both(2)
    assert [stop(0, place, step) for place, step in enumerate((sound, doubtful, doubtful, bad))] == [False] * 3 + [True]
    assert [stop(1, place, step) for place, step in enumerate((bad, sound, doubtful))] == [False, False, True]


def test_rules() -> None:
    sound, doubtful, bad = (
        StepScore(0.9, 0.9, None, 0.8),
        StepScore(0.4, 0.9, None, 0.7),
        StepScore(0.9, 0.9, None, 0.2),
    )
    assert first_error([sound, doubtful, bad], "pass1") == 1
    assert first_error([sound, doubtful, bad], "both") == 2
    assert first_error([sound, sound], "both") == -1
    assert first_error([], "both") == -1
