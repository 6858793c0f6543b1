"""Published PRMs on the small world's benchmarks: the form of our own runs, both conventions, repeatable bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from evidence.dvc.pipeline import read_pipeline
from ground.io import DataError, read_json
from pathfinder.benchmarks.grade import grade
from pathfinder.benchmarks.metrics import PRMBench
from pathfinder.benchmarks.prmbench import evaluate, labels_of
from pathfinder.benchmarks.readers import read_prmbench
from pathfinder.cli import app
from pathfinder.core.params import load_params
from pathfinder.reporting.names import PRMBENCH
from pathfinder.reporting.paper_tables import _views
from pathfinder.reporting.tables import PUBLISHED_RULES
from stages import sample, search
from stages.baseline import main
from tests.baselines.model_folders import FOLDERS
from tests.support.evaluation_inputs import ROOT, evaluation_project, rows_of


@pytest.fixture
def project(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the world's benchmarks, three items per subset or class, and two systems' models."""
    evaluation_project(tmp_path, world, processbench={"limit": 3}, prmbench={"limit": 3})
    for name in ("skywork", "reasoneval"):
        FOLDERS[name](tmp_path / "artifacts/raw/models" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_processbench(project: Path) -> None:
    main(["reasoneval", "processbench"])
    predictions = Path("artifacts/predictions/processbench/reasoneval.jsonl")
    metrics = read_json(Path("metrics/processbench/reasoneval.json"))
    rows = rows_of(predictions)
    assert len(rows) == metrics["kept"] == 12
    assert (metrics["system"], metrics["titles"]) == ("reasoneval", ["ReasonEval-7B"])
    assert metrics["decision"] == {"authors": {"threshold": 0.5, "change": False, "redundancy": None}}
    assert metrics["rules"] == {"authors": {k: metrics[k] for k in ("subsets", "mean_f1", "interval")}}
    for row in rows:
        wrong = [step["reward"] <= 0.5 for step in row["steps"]]
        assert row["prediction"] == (wrong.index(True) if True in wrong else -1)
    assert len({step["reward"] for row in rows for step in row["steps"]}) > 10
    graded = grade("processbench", predictions, Path("artifacts/raw/processbench"))
    assert graded["details"]["unknown_id"] == 0
    before = predictions.read_bytes(), Path("metrics/processbench/reasoneval.json").read_bytes()
    main(["reasoneval", "processbench"])
    assert before == (predictions.read_bytes(), Path("metrics/processbench/reasoneval.json").read_bytes())


def test_prmbench_under_both_conventions(project: Path) -> None:
    main(["skywork", "prmbench"])
    rows = rows_of(Path("artifacts/predictions/prmbench/skywork.jsonl"))
    metrics = read_json(Path("metrics/prmbench/skywork.json"))
    assert list(metrics["rules"]) == ["authors", "benchmark"]
    assert metrics["decision"]["benchmark"] == {"threshold": -0.05, "change": True, "redundancy": None}
    assert metrics["overall"] == metrics["rules"]["authors"]["overall"]
    for row in rows:
        authors, benchmark = ([step[key] for step in row["steps"]] for key in ("reward", "reward_benchmark"))
        assert row["scores"]["step_level_validity_labels"] == [reward > 0.5 for reward in authors]
        theirs = [b - a > -0.05 for a, b in zip([0.0, *benchmark], benchmark, strict=False)]
        *found, _ = row["scores"]["step_level_validity_labels_benchmark"]  # the evaluator reads one place more
        assert found == theirs
    graded = grade("prmbench", Path("artifacts/predictions/prmbench/skywork.jsonl"), Path("artifacts/raw/prmbench"))
    assert graded["classes"] == metrics["classes"]


def test_the_paper_s_row_has_the_evaluator_s_arithmetic(project: Path) -> None:
    """PRMBench's evaluator reads one place of Skywork more than there are steps, and counts its label too."""
    main(["skywork", "prmbench"])
    metrics = read_json(Path("metrics/prmbench/skywork.json"))
    labels = {
        row["idx"]: row["scores"]["step_level_validity_labels_benchmark"]
        for row in rows_of(Path("artifacts/predictions/prmbench/skywork.jsonl"))
    }
    items = read_prmbench(Path("artifacts/raw/prmbench"), 3).items
    official, repaired = (evaluate(items, labels, preset) for preset in ("official", "repaired"))
    assert official["overall"] != repaired["overall"] == metrics["rules"]["benchmark"]["overall"]
    assert metrics["official"] == {name: official[name] for name in ("classes", "categories", "overall")}
    views = {words: view for words, view, _ in _views(PRMBENCH, PRMBench.model_validate(metrics))}
    assert views[PUBLISHED_RULES["benchmark"]].headline == official["overall"]
    assert views[PUBLISHED_RULES["authors"]].headline == metrics["overall"]
    asked = ["--system", "skywork", "--on", "prmbench", "--limit", "3", "--subsets", "--json"]
    done = CliRunner().invoke(app, ["bench", "artifacts/raw/models/skywork", *asked])
    assert done.exit_code == 0, done.output
    found = {row["subset"]: row["value"] for row in json.loads(done.stdout) if row["rule"] == "benchmark"}
    assert found == pytest.approx({"all": official["overall"], **official["classes"], **official["categories"]})


def test_redundancy_in_predictions_metrics_and_bench(project: Path) -> None:
    """PRMBench's evaluator judges ReasonEval's redundancy; the authors' convention does not."""
    main(["reasoneval", "prmbench"])
    rows = rows_of(Path("artifacts/predictions/prmbench/reasoneval.jsonl"))
    metrics = read_json(Path("metrics/prmbench/reasoneval.json"))
    assert metrics["decision"]["benchmark"]["redundancy"] == 0.15
    labels: dict[str, dict[str, Any]] = {"": {}, "_benchmark": {}}
    for row in rows:
        superfluous = [step["redundancy_benchmark"] > 0.15 for step in row["steps"]]
        assert row["scores"]["step_level_redundancy_labels_benchmark"] == superfluous
        assert "step_level_redundancy_labels" not in row["scores"]
        for suffix, found in labels.items():
            given = {name.removesuffix(suffix): each for name, each in row["scores"].items() if name.endswith(suffix)}
            found[row["idx"]] = labels_of("", {"scores": given}, row["classification"])
    items = read_prmbench(Path("artifacts/raw/prmbench"), 3).items
    for (rule, figures), found in zip(metrics["rules"].items(), labels.values(), strict=True):
        assert evaluate(items, found)["classes"] == figures["classes"], rule
    assert metrics["rules"]["benchmark"]["classes"] != metrics["rules"]["authors"]["classes"]
    assert (metrics["reading"], metrics["readings"]["definition"]) == ("soundness", metrics["rules"]["benchmark"])
    changed = {
        name
        for name, value in metrics["readings"]["soundness"]["classes"].items()
        if value != metrics["readings"]["definition"]["classes"][name]
    }
    assert changed <= {"redundency", "circular"}, "the correctness labels of a system that also judges redundancy"
    asked = ["--system", "reasoneval", "--on", "prmbench", "--limit", "3", "--json"]
    done = CliRunner().invoke(app, ["bench", "artifacts/raw/models/reasoneval", *asked])
    assert done.exit_code == 0, done.output
    printed = {row["rule"]: row["value"] for row in json.loads(done.stdout)}
    assert printed == {rule: pytest.approx(figures["overall"]) for rule, figures in metrics["rules"].items()}


def test_what_is_longer_than_the_context_is_missed_and_counted(project: Path) -> None:
    """An overlong solution neither ends the run nor gets a verdict."""
    config = Path("artifacts/raw/models/reasoneval/config.json")
    lengths = sorted(sum(map(len, [row["problem"], *row["steps"]])) for row in _first_rows("processbench"))
    config.write_text(json.dumps(json.loads(config.read_text()) | {"sliding_window": lengths[-2]}))
    main(["reasoneval", "processbench"])
    rows = rows_of(Path("artifacts/predictions/processbench/reasoneval.jsonl"))
    metrics = read_json(Path("metrics/processbench/reasoneval.json"))
    missed = [row for row in rows if row["prediction"] is None]
    assert 0 < len(missed) == metrics["too_long"]["authors"] < len(rows) == 12
    assert all(row["steps"] == [] for row in missed)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"sliding_window": 1}))
    main(["reasoneval", "prmbench"])
    rows = rows_of(Path("artifacts/predictions/prmbench/reasoneval.jsonl"))
    assert all(row["validity"] is False and row["scores"] == {} for row in rows)
    metrics = read_json(Path("metrics/prmbench/reasoneval.json"))
    assert metrics["overall"] == 0
    assert metrics["details"]["defects"]["invalid"] == len(rows) == metrics["too_long"]["authors"]


def _first_rows(benchmark: str) -> list[dict[str, Any]]:
    """The three items per file that the project's limit keeps."""
    files = sorted(Path("artifacts/raw", benchmark).glob("*.json"))
    return [row for file in files for row in json.loads(file.read_text())[:3]]


def test_an_unknown_system_or_missing_model_is_reported(project: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"unknown system 'skywork-2'; did you mean skywork\? expected one of pathfinder-prm-7b, llemma, ",
    ):
        main(["skywork-2", "prmbench"])
    shutil.rmtree("artifacts/raw/models/skywork")
    with pytest.raises(ValueError, match=r"artifacts/raw/models/skywork: no config\.json"):
        main(["skywork", "prmbench"])


def test_search_and_best_of_n(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation_project(tmp_path, world, search={"limit": 1, "max_rounds": 5})
    FOLDERS["skywork"](tmp_path / "artifacts/raw/models/skywork")
    monkeypatch.chdir(tmp_path)
    shutil.rmtree("models")  # no run of ours is needed
    sample.main([])
    search.main(["skywork"])
    figures = read_json(Path("metrics/search/skywork.json"))
    assert (figures["system"], figures["titles"]) == ("skywork", ["Skywork-PRM-7B"])
    assert {"min", "product", "last", "mean"} <= set(figures["best_of_n"]["average"])
    rows = rows_of(Path("artifacts/predictions/search/skywork.jsonl"))
    assert len(rows) == 6
    entries = [entry for row in rows for entry in row["iteration_history"]]
    assert any(candidate["reward"] < 0.5 for entry in entries for candidate in entry["candidates_info"])
    for entry in entries:
        rewards = [candidate["reward"] for candidate in entry["candidates_info"]]
        assert entry["chosen_step_index"] == rewards.index(max(rewards)), "a low reward must not reject a candidate"
        assert not any("rejected" in candidate for candidate in entry["candidates_info"])


def test_a_profile_makes_three_stages_a_system(project: Path) -> None:
    shutil.copy(ROOT / "dvc.yaml", "dvc.yaml")
    assert not [name for name in read_pipeline(project) if name.startswith("baseline")]
    params = yaml.safe_load(Path("params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump(params | {"baselines": ["skywork", "qwen-prm"]}))
    assert load_params().baselines == ["skywork", "qwen-prm"]
    stages = read_pipeline(project)
    found = {stages[name].cmd for name in stages if name.startswith("baseline")}
    assert found == {
        f"python -m stages.baseline {system} {benchmark}"
        for system in ("skywork", "qwen-prm")
        for benchmark in ("processbench", "prmbench")
    } | {f"python -m stages.search {system}" for system in ("skywork", "qwen-prm")}
    Path("params.yaml").write_text(yaml.safe_dump(params | {"baselines": ["x; rm -r y"]}))
    with pytest.raises(DataError, match=r"baselines\.0: String should match pattern"):
        load_params()
    with pytest.raises(DataError, match="`baselines` holds 'x; rm -r y'; expected words of letters"):
        read_pipeline(project)


def test_commands(project: Path) -> None:
    runner = CliRunner()
    model = "artifacts/raw/models/reasoneval"
    main(["reasoneval", "processbench"])
    metrics = read_json(Path("metrics/processbench/reasoneval.json"))
    asked = ["--system", "reasoneval", "--on", "processbench", "--limit", str(load_params().processbench.limit)]
    done = runner.invoke(app, ["bench", model, *asked, "--json"])
    assert done.exit_code == 0, done.output
    figures = {row["rule"]: row["value"] for row in json.loads(done.stdout)}
    assert figures == {rule: pytest.approx(found["mean_f1"]) for rule, found in metrics["rules"].items()}
    Path("in.jsonl").write_text(json.dumps({"id": "a", "problem": "1+1?", "steps": ["2", "so 3"]}) + "\n")
    done = runner.invoke(app, ["score", "in.jsonl", "--system", "reasoneval", "--model", model])
    assert done.exit_code == 0, done.output
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert [step["math"] for step in row["steps"]] == [None, None]
    assert all(0 < step["reward"] < 1 for step in row["steps"])
    refused = runner.invoke(app, ["score", "in.jsonl", "--system", "gpt", "--model", model])
    assert refused.exit_code == 2
    assert "unknown system 'gpt'" in refused.output


MINE = """
from dataclasses import dataclass

from pathfinder.baselines.adapter import AUTHORS, Method, Piece, System
from pathfinder.baselines.heads import token_head


@dataclass(frozen=True, slots=True)
class Mine:
    forbidden: tuple[str, ...] = ("ки",)

    def encode(self, text, solution):
        steps = [piece for step in solution.steps for piece in (Piece(text.safe(step)), Piece("ки", read=True))]
        return text.encode([Piece(text.safe(solution.problem)), *steps])

    def head(self, text, weights):
        return token_head(weights, text.exact("+ -", 2))


SYSTEM = System("mine", ("My PRM",), {AUTHORS: Method(Mine())})
"""


@pytest.mark.usefixtures("warm_starts")
def test_a_new_prm_is_one_file_and_one_line(project: Path) -> None:
    """In a copy of the code, the stage evaluates a system after one new file and one new line."""
    for folder in ("ground", "pathfinder", "stages", "evidence", "extras", "world"):
        shutil.copytree(ROOT / folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    Path("pathfinder/baselines/mine.py").write_text(MINE)
    registry = Path("pathfinder/baselines/registry.py")
    registry.write_text(
        registry.read_text()
        .replace("import llemma,", "import mine, llemma,")
        .replace("    llemma.SYSTEM,\n", "    llemma.SYSTEM,\n    mine.SYSTEM,\n")
    )
    FOLDERS["math-shepherd"](Path("artifacts/raw/models/mine"))
    done = subprocess.run(
        [sys.executable, "-m", "stages.baseline", "mine", "processbench"],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    metrics = read_json(Path("metrics/processbench/mine.json"))
    assert (metrics["system"], metrics["titles"], metrics["kept"]) == ("mine", ["My PRM"], 12)
    assert (
        len(
            {
                step["reward"]
                for row in rows_of(Path("artifacts/predictions/processbench/mine.jsonl"))
                for step in row["steps"]
            }
        )
        > 10
    )
