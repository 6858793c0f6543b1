"""The search on the shipped world with an untrained PRM and with the control; a killed run goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages.core.grade import grade
from stages.core.io import read_json
from stages.search import main
from tests.evaluation_inputs import ROOT, evaluation_project, rows_of


@pytest.mark.parametrize("variant", ["full", "random"])
def test_stage(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    evaluation_project(tmp_path, world, search={"limit": 2})
    monkeypatch.chdir(tmp_path)
    if variant == "random":
        shutil.rmtree("models")  # the control needs no PRM
    main([variant])
    predictions = Path(f"artifacts/predictions/search/{variant}.jsonl")
    rows, figures = rows_of(predictions), read_json(Path(f"metrics/search/{variant}.json"))
    assert len(rows) == figures["kept"] == 12
    assert figures["average"] == pytest.approx(sum(s["prm@8"] for s in figures["sets"].values()) / 6)
    for row in rows:
        assert row["final_steps"] == [
            e["chosen_step"] for e in row["iteration_history"] if e["chosen_step"] is not None
        ]
        assert row["finished"] == row["final_steps"][-1].endswith("<|im_end|>")
    graded = grade("search", predictions, Path("artifacts/raw/search"))
    assert graded["details"]["unknown_question"] == 0
    assert graded["details"]["grading_failures"] == {}


def test_official_preset_runs(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation_project(tmp_path, world, search={"limit": 1, "max_rounds": 6}, score={"preset": "official-search"})
    monkeypatch.chdir(tmp_path)
    main(["full"])
    rows = rows_of(Path("artifacts/predictions/search/full.jsonl"))
    assert len(rows) == 6
    infos = [info for row in rows for entry in row["iteration_history"] for info in entry["candidates_info"]]
    assert not any("rejected" in info for info in infos)


@pytest.mark.slow
def test_a_killed_run_goes_on(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation_project(tmp_path, world, search={"limit": 2, "batch_size": 2})
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "stages.search", "full"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment) as process:
        deadline = time.monotonic() + 120
        while not list(Path().glob(".pathfinder/search/*/*.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    done = sorted(Path().glob(".pathfinder/search/*/*.json"))
    assert 1 <= len(done) < 6
    stamps = [path.stat().st_mtime_ns for path in done]
    main(["full"])
    assert stamps == [path.stat().st_mtime_ns for path in done], "chunks that were done are not done again"
    resumed = (
        Path("artifacts/predictions/search/full.jsonl").read_bytes(),
        Path("metrics/search/full.json").read_bytes(),
    )
    shutil.rmtree(".pathfinder")
    main(["full"])
    again = Path("artifacts/predictions/search/full.jsonl").read_bytes(), Path("metrics/search/full.json").read_bytes()
    assert resumed == again
