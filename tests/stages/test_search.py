"""The search on the shipped world with an untrained PRM; a killed run resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ground.io import DataError, read_json, write_json
from pathfinder.benchmarks.grade import grade
from pathfinder.policy.samples import grade_all
from stages import sample
from stages.search import main
from tests.support.evaluation_inputs import ROOT, evaluation_project, rows_of


def check_search(predictions: Path, metrics: Path, problems: int) -> None:
    """The rows and figures of a search over ``problems`` problems of the six sets."""
    rows, figures = rows_of(predictions), read_json(metrics)
    assert len(rows) == figures["kept"] == problems
    assert figures["average"] == pytest.approx(sum(s["prm@8"] for s in figures["sets"].values()) / 6)
    for row in rows:
        assert row["final_steps"] == [
            e["chosen_step"] for e in row["iteration_history"] if e["chosen_step"] is not None
        ]
        assert row["finished"] == row["final_steps"][-1].endswith("<|im_end|>")
    details = figures["details"]
    assert details["policy_calls"] == max(row["rounds"] for row in rows), "all problems advance together"
    assert details["policy_calls_one_problem_at_a_time"] == sum(row["rounds"] for row in rows)
    graded = grade("search", predictions, Path("artifacts/raw/search"))
    assert graded["details"]["unknown_question"] == 0
    assert graded["details"]["grading_failures"] == {}
    assert {key: figures[key] for key in ("sets", "average", "interval")} == figures["repaired"]
    assert grade("search", predictions, Path("artifacts/raw/search"), "official")["average"] == pytest.approx(
        figures["official"]["average"]
    )


def test_stage(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation_project(tmp_path, world, search={"limit": 2})
    monkeypatch.chdir(tmp_path)
    sample.main([])
    main(["full"])
    metrics = Path("metrics/search/full.json")
    check_search(Path("artifacts/predictions/search/full.jsonl"), metrics, 12)
    found, samples = read_json(metrics)["best_of_n"]["average"], rows_of(sample.PREDICTIONS)
    chosen = rows_of(Path("artifacts/predictions/best_of_n/full.jsonl"))
    assert {k: v for k, v in found.items() if "@" in k} == read_json(sample.METRICS)["average"]
    right = [s["right"][c["chosen"]["min"]] for s, c in zip(samples, chosen, strict=True)]
    assert found["min"] == pytest.approx(100 * sum(right) / 12)


def test_an_unknown_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="random"):
        main(["random"])


def test_official_preset_runs(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation_project(tmp_path, world, search={"limit": 1, "max_rounds": 6, "preset": "official"})
    monkeypatch.chdir(tmp_path)
    presets: list[str] = []

    def graded(problems: Any, drawn: Any, preset: Any) -> Any:
        presets.append(preset)
        return grade_all(problems, drawn, preset)

    monkeypatch.setattr("stages.sample.grade_all", graded)
    sample.main([])
    assert presets == ["official"]
    main(["full"])
    rows = rows_of(Path("artifacts/predictions/search/full.jsonl"))
    assert len(rows) == 6
    infos = [info for row in rows for entry in row["iteration_history"] for info in entry["candidates_info"]]
    assert not any("rejected" in info for info in infos)
    metrics = read_json(Path("metrics/search/full.json"))
    assert metrics["preset"] == "official"
    assert {key: metrics[key] for key in ("sets", "average", "interval")} == metrics["official"]


def test_a_beam_runs_and_the_published_preset_refuses_it(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beam = {"limit": 1, "strategy": "beam", "width": 2, "max_rounds": 8}
    evaluation_project(tmp_path, world, search=beam)
    monkeypatch.chdir(tmp_path)
    sample.main([])
    main(["no_subtasks"])
    rows = rows_of(Path("artifacts/predictions/search/no_subtasks.jsonl"))
    assert len(rows) == 6
    assert all(row["final_steps"] for row in rows)
    evaluation_project(tmp_path / "official", world, search=beam | {"preset": "official"})
    monkeypatch.chdir(tmp_path / "official")
    Path("models/full/model.safetensors").write_bytes(b"")  # the check comes before anything is loaded
    with pytest.raises(DataError, match=r"search\.strategy is beam, expected greedy"):
        main(["full"])


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.usefixtures("warm_starts")
def test_a_killed_run_resumes(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation_project(tmp_path, world, search={"limit": 2, "batch_size": 2})
    monkeypatch.chdir(tmp_path)
    sample.main([])
    command = [sys.executable, "-m", "stages.search", "full"]
    # This process has loaded its libraries already, so they have the kernels of its processor.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATHFINDER_KERNELS": "native"}
    with subprocess.Popen(command, env=environment) as process:
        deadline = time.monotonic() + 120
        while not list(Path().glob(".pathfinder/search/full/*/*.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    done = sorted(Path().glob(".pathfinder/search/full/*/*.json"))
    assert 1 <= len(done) < 6
    written: list[Path] = []

    def write(path: Path, value: object) -> None:
        written.append(path)
        write_json(path, value)

    monkeypatch.setattr("pathfinder.engines.workers.write_json", write)
    main(["full"])
    assert sum("search" in path.parts for path in written) == 6 - len(done), "finished chunks are not repeated"
    resumed = (
        Path("artifacts/predictions/search/full.jsonl").read_bytes(),
        Path("metrics/search/full.json").read_bytes(),
    )
    main(["full"])
    again = Path("artifacts/predictions/search/full.jsonl").read_bytes(), Path("metrics/search/full.json").read_bytes()
    assert resumed == again
