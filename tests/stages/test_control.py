"""The control on the shipped world: the search with a random pick needs no PRM."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ground.io import read_json
from stages import control
from tests.stages.test_search import check_search
from tests.support.evaluation_inputs import evaluation_project


def test_stage(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation_project(tmp_path, world, search={"limit": 1})
    monkeypatch.chdir(tmp_path)
    shutil.rmtree("models")
    control.main([])
    check_search(control.PREDICTIONS, control.METRICS, 6)
    assert "best_of_n" not in read_json(control.METRICS)
    assert not Path(".pathfinder/control").exists(), "kept only until the results are written"
    before = control.PREDICTIONS.read_bytes(), control.METRICS.read_bytes()
    control.main([])
    assert before == (control.PREDICTIONS.read_bytes(), control.METRICS.read_bytes()), "the seed decides the picks"
