"""`pathfinder bench` gives the figures that scoring and grading give, in one form for every benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pathfinder.benchmarks.evaluation import BenchmarkName
from pathfinder.benchmarks.grade import grade
from pathfinder.cli import app
from pathfinder.core.io import write_jsonl
from tests.prm.test_scoring import save_prm
from tests.support.report_inputs import write_benchmarks

CLI = CliRunner()
KEYS = ["benchmark", "rule", "figure", "value", "low", "high", "items"]


def run(*words: str) -> str:
    done = CLI.invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_benchmarks()
    save_prm(Path("model"))
    return tmp_path


def test_figures_are_those_of_scoring_and_grading(folder: Path) -> None:
    rows = json.loads(run("bench", "model", "--json"))
    assert [list(row) for row in rows] == [KEYS] * 4
    found = {(row["benchmark"], row["rule"]): row for row in rows}
    assert [row["items"] for row in rows] == [60, 60, 20, 20]
    figures: dict[BenchmarkName, str] = {"processbench": "mean_f1", "prmbench": "overall"}
    for benchmark, key in figures.items():
        for mode, rule in (("both", "both"), ("pass1", "pass1")):
            files = sorted((folder / "artifacts/raw" / benchmark).iterdir())
            given = [run("score", str(file), "--model", "model", "--as", benchmark, "--mode", mode) for file in files]
            Path("predictions.jsonl").write_text("".join(given))
            graded = grade(benchmark, Path("predictions.jsonl"), folder / "artifacts/raw" / benchmark, "repaired")
            row = found[benchmark, rule]
            assert row["value"] == pytest.approx(graded[key], abs=1e-9)
            assert row["low"] <= row["value"] <= row["high"]
    assert run("bench", "model", "--on", "prmbench", "--limit", "5").splitlines()[0].split() == KEYS


def test_search_is_the_best_of_the_sampled_solutions(folder: Path) -> None:
    texts = ["a\n\nThe answer is 1.", "b\n\nThe answer is 2."]
    row: dict[str, Any] = {"set": "math", "question": "q", "solutions": texts, "answers": ["1", "2"]}
    row |= {"right": [True, True], "majority_right": True}
    write_jsonl(Path("artifacts/predictions/sample.jsonl"), [row | {"id": number} for number in range(3)])
    rows = json.loads(run("bench", "model", "--on", "search", "--limit", "2", "--json"))
    assert {"pass@1", "min", "product", "last", "mean"} <= {each["rule"] for each in rows}
    assert {(each["value"], each["items"]) for each in rows} == {(100.0, 2)}


def test_an_unknown_benchmark_and_absent_samples_are_named(folder: Path) -> None:
    done = CLI.invoke(app, ["bench", "model", "--on", "prmbench,mmlu"])
    assert done.exit_code == 1
    assert "unknown benchmark 'mmlu'; use processbench, prmbench, search" in done.output
    done = CLI.invoke(app, ["bench", "model", "--on", "search"])
    assert done.exit_code == 1
    assert "run the stage sample with" in done.output
