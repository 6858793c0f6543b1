"""Whole solutions on the shipped world: figures that follow from the rows, and a killed run that resumes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ground.io import read_json
from pathfinder.core.params import load_params
from stages.sample import main
from tests.support.evaluation_inputs import evaluation_project, rows_of


def test_stage(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation_project(tmp_path, world, search={"limit": 1, "batch_size": 2})
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("stages.sample.remove", lambda _: None)  # as if it were killed before
        main([])
    predictions, metrics = Path("artifacts/predictions/sample.jsonl"), Path("metrics/sample.json")
    rows, figures = rows_of(predictions), read_json(metrics)
    assert len(rows) == 6
    assert {row["set"] for row in rows} == set(load_params().search.sets)
    assert all(len(row["solutions"]) == len(row["right"]) == 8 for row in rows)
    math = [row for row in rows if row["set"] == "math"]
    assert figures["sets"]["math"]["pass@1"] == pytest.approx(100 * sum(sum(r["right"]) for r in math) / 8)
    assert figures["sets"]["math"]["pass@8"] == pytest.approx(100 * sum(any(r["right"]) for r in math))
    assert figures["average"]["pass@8"] >= figures["average"]["pass@1"]
    assert figures["average"]["pass@1"] > 0, "the shipped policy solves some problems"
    before = predictions.read_bytes(), metrics.read_bytes()

    (journal,) = Path(".pathfinder/sample").iterdir()
    chunks = sorted(journal.iterdir())
    assert [chunk.name for chunk in chunks] == ["000000.json", "000002.json", "000004.json"]
    chunks[1].unlink()  # as after a kill in the second chunk
    chunks[2].unlink()
    shutil.rmtree("artifacts/predictions")
    main([])
    assert before == (predictions.read_bytes(), metrics.read_bytes())
    assert not Path(".pathfinder/sample").exists(), "the same command draws again"
