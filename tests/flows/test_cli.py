"""The `pathfinder` command on a real small project."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from tests.flows.conftest import Project

cli = CliRunner()


def test_help_loads_nothing_heavy(project: Project) -> None:
    code = (
        "import sys; sys.argv = ['pathfinder', '--help']\n"
        "from flows.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'prefect', 'transformers', 'great_expectations', 'boto3', 'dvc'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    output = project.run("-c", code)
    assert all(verb in output for verb in ("run", "plan", "profile", "score", "grade", "record", "lineage"))


def test_plan_says_why(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    first = cli.invoke(app, ["plan"])
    assert first.exit_code == 0, first.output
    assert "never run" in first.output
    project.run("-m", "dvc", "repro", "-q")
    start = time.monotonic()
    assert "nothing to do" in cli.invoke(app, ["plan"]).output
    assert time.monotonic() - start < 60
    (project.root / "out/odd.txt").unlink()
    third = cli.invoke(app, ["plan", "total"]).output
    assert "output out/odd.txt missing" in third
    assert "numbers" not in third


def test_errors_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["plan"], ["run"], ["profile", "x"], ["lineage", "up", "models/full"]):
        result = cli.invoke(app, words)
        assert result.exit_code == 1, words
        assert "error: " in result.output
        assert "Traceback" not in result.output


def test_profile_lists_and_writes(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(root / "infra/profiles", tmp_path / "infra/profiles")
    monkeypatch.chdir(tmp_path)
    assert "now holds profile quickstart" in cli.invoke(app, ["profile", "quickstart"]).output
    assert "* quickstart" in cli.invoke(app, ["profile"]).output
    assert "already held" in cli.invoke(app, ["profile", "quickstart"]).output


def test_grade_prints_a_benchmarks_row(world: Path, tmp_path: Path) -> None:
    rows = []
    for path in sorted((world / "processbench").glob("*.json")):
        rows += [
            {"subset": path.stem, "id": item["id"], "prediction": item["label"]}
            for item in json.loads(path.read_text())
        ]
    assert rows
    file = tmp_path / "perfect.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = str(world / "processbench")
    result = cli.invoke(app, ["grade", "processbench", str(file), "--data", data, "--format", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["mean_f1"] == 100.0
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[1:]))
    result = cli.invoke(app, ["grade", "processbench", str(file), "--data", data])
    assert "mean" in result.stdout
    assert "note: items without a row (missed): 1\n" in result.stderr
    result = cli.invoke(app, ["grade", "processbench", str(file), "--data", data, "--format", "json"])
    assert json.loads(result.output)["details"]["without_prediction"] == 1, "JSON alone, whoever reads it"


def test_plan_says_what_memory_a_profile_needs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(root / "infra", tmp_path / "infra")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.invoke(app, ["profile", "paper"]).exit_code == 0
    small = cli.invoke(app, ["plan", "--gpu", "--memory", "80"])
    assert small.exit_code == 1, small.output
    assert "does not fit; train.launch: machine needs" in small.output
    assert "optimiser 56.7" in small.output
    assert cli.invoke(app, ["plan", "--gpu", "--memory", "200"]).exit_code == 0
