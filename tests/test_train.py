"""The verb ``pathfinder train``: from our own export to a model that every other verb takes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ground.io import DataError, read_json, sha256_file, write_parquet
from pathfinder import PRM
from pathfinder.cli import app
from pathfinder.core.params import Train
from pathfinder.train import DEMO
from pathfinder.training.stepwise import read, split
from tests.support import warm
from tests.support.own_steps import ROOT, world_rows, write_lines
from tests.support.verbs import checked

BASE = ROOT / "data/models/base"
QUICK = ("--batch", "8", "--epochs", "1")


def run(*words: Any, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["train", *map(str, words)])
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 else done.stderr


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "pathfinder", "train", *words]
    return warm.Popen(command, cwd=folder, env=environment | warm.inherited(), stderr=subprocess.PIPE)


def test_a_model_learns_to_tell_right_steps_from_wrong_ones(tmp_path: Path) -> None:
    """The base model has never seen a label. On held-out problems, chance is the share of the commoner label."""
    file, out = write_lines(tmp_path / "own.jsonl", world_rows(150)), tmp_path / "prm"
    result = checked("train", run(file, "--out", out, "--base", BASE, "--batch", "32", "--held-out", ".2", "--json"))
    figures = result["labels"]["correctness"]
    assert figures["n"] == result["held_out_steps"] > 100
    assert figures["accuracy"] > figures["majority_accuracy"] + 0.15
    assert not out.with_name("prm.progress").exists()
    described = read_json(out / "pathfinder.json")
    assert described["data"] == {
        "file": "own.jsonl",
        "sha256": sha256_file(file),
        "rows": result["rows"],
        "learnt_steps": result["learnt_steps"],
    }
    card = (out / "README.md").read_text()
    assert sha256_file(file) in card
    assert f"| correctness | {figures['n']} | {figures['accuracy']:.3f} |" in card
    assert str(tmp_path) not in card
    row = world_rows(1)[0]
    scored = PRM.load(out, device="cpu").score(row["prompt"], row["completions"])
    assert all(0 <= reward <= 1 for reward in scored.rewards)


def test_one_value_of_a_label_leaves_no_area_to_report(tmp_path: Path) -> None:
    rows = [row | {"labels": [True] * len(row["labels"])} for row in world_rows(12)]
    file, out = write_lines(tmp_path / "own.jsonl", rows), tmp_path / "prm"
    printed = run(file, "--out", out, "--base", BASE, *QUICK, "--held-out", ".3")
    (line,) = (line.split() for line in printed.splitlines() if line.startswith("correctness"))
    assert (line[2], line[3]) == ("1.000", "–")
    assert "| 1.000 | – |\n" in (out / "README.md").read_text()


def test_a_killed_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    words = (str(ROOT / "examples/steps.jsonl"), "--batch", "2", "--epochs", "1", "--out")
    process = start(tmp_path, *words, "killed")
    deadline = time.monotonic() + 200
    while not list(tmp_path.glob("killed.progress/*/checkpoint-*/part-*.json")) and time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed").exists()
    copy = shutil.copytree(tmp_path / "killed.progress", tmp_path / "fresh.progress")
    resumed = json.loads(run(*words, tmp_path / "killed", "--json"))
    fresh = json.loads(run(*words, tmp_path / "fresh", "--fresh", "--json"))
    assert not copy.exists()
    taken = [result["seconds"] * result["steps_per_second"] for result in (resumed, fresh)]
    assert taken == pytest.approx([resumed["optimiser_steps"] - 50, fresh["optimiser_steps"]])
    assert resumed["labels"] == fresh["labels"]
    for path in (tmp_path / "fresh").iterdir():
        assert path.read_bytes() == (tmp_path / "killed" / path.name).read_bytes(), path.name


def test_other_code_continues_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if the same command resumes from checkpoints that the code before a `git pull` wrote."""
    file, places = write_lines(tmp_path / "own.jsonl", world_rows(3)), list[Path]()

    def stopped(*given: Any) -> Any:
        places.append(given[3])
        raise DataError("stopped")

    monkeypatch.setattr("pathfinder.training.run.train", stopped)
    for code in ("old", "old", "new"):
        monkeypatch.setattr("pathfinder.engines.workers.code_digests", lambda code=code: [code])
        assert "stopped" in run(file, "--out", tmp_path / "prm", status=1)
    assert places[0] == places[1] != places[2]


def test_the_weights_are_those_of_the_stage(tmp_path: Path) -> None:
    """The stage trains on the same records as tables of its pipeline, some with soft labels, with equal settings."""
    rows = world_rows(12)
    for row in rows[::2]:
        row["mc_value"] = [0.125 + 0.75 * label for label in row["labels"]]
    file = write_lines(tmp_path / "own.jsonl", rows)
    run(file, "--out", tmp_path / "own", "--base", BASE, "--soft", *QUICK)
    assert read_json(tmp_path / "own/pathfinder.json")["train"]["soft_labels"]
    learn, test = split(read(file).trees(soft=True), 0.1, 42)
    write_parquet(tmp_path / "artifacts/train/train.parquet", learn)
    write_parquet(tmp_path / "artifacts/train/test.parquet", test)
    shutil.copytree(BASE, tmp_path / "artifacts/raw/models/base")
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["train"] = Train(**read_json(tmp_path / "own/pathfinder.json")["train"]).model_dump()
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "stages.train", "no_subtasks"]
    done = warm.run(command, cwd=tmp_path, env=environment | warm.inherited(), capture_output=True)
    assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (tmp_path / "own" / name).read_bytes() == (tmp_path / "models/no_subtasks" / name).read_bytes(), name


def test_typed_labels_and_an_adapter_give_a_model_with_all_readings(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": f"Tom has {n} apples and buys {n}. How many are there?",
            "completions": [f"{n} + {n} = {2 * n}.", f"So there are {2 * n + n % 2}."],
            "math": [1, 1 - n % 2],
            "consistency": [True, True],
            "labels": [1 - n % 3, -(n % 2)],
        }
        for n in range(1, 25)
    ]
    file, out = write_lines(tmp_path / "typed.jsonl", rows), tmp_path / "new" / "prm"
    out.mkdir(parents=True)
    text = run(file, "--out", out, "--neutral", "third", "--variant", "full", "--lora", "2", *QUICK)
    assert text.startswith("trained full on ")
    assert "a neutral step (0) has no error and is not correct" in text
    assert [line.split()[0] for line in text.splitlines() if line[:4] in ("math", "cons", "corr")] == [
        "math",
        "consistency",
        "correctness",
    ]
    assert (out / "adapter/adapter_config.json").exists()
    assert read_json(out / "pathfinder.json")["data"]["neutral"] == "a neutral step (0) has no error and is not correct"
    step = PRM.load(out, device="cpu").score("1 + 1?", ["It is 2."]).steps[0]
    assert step.soundness is not None
    assert step.quality is not None


def test_what_cannot_be_trained_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = write_lines(tmp_path / "own.jsonl", world_rows(3)), tmp_path / "prm"
    monkeypatch.setattr("pathfinder.training.trainer.fit", lambda *_: pytest.fail("trained"))
    out.mkdir()
    (out / "file").touch()
    assert "prm: not an empty folder; name a new one with --out" in run(file, "--out", out, status=1)
    (out / "file").unlink()
    monkeypatch.chdir(out)
    assert ".: not an empty folder" in run(file, "--out", ".", status=1)
    for words in (("--epochs", "nan"), ("--epochs", "inf"), ("--learning-rate", "nan"), ("--seed", str(2**32))):
        assert "Invalid value" in run(file, "--out", out, *words, status=2)
    bare = shutil.copytree(DEMO, tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*"))
    assert "no tokenizer.json; a model folder needs" in run(file, "--out", out, "--base", bare, status=1)
    assert "--revision is for a --base of the Hub" in run(file, "--out", out, "--revision", "main", status=2)
    assert "no config.json; name the folder that holds a model's files" in run(
        file, "--out", out, "--base", tmp_path, status=1
    )
    assert "can train no_subtasks or plain_error, not full" in run(file, "--out", out, "--variant", "full", status=1)
    assert "own.jsonl: no row has a share in mc_value; leave --soft out" in run(file, "--out", out, "--soft", status=1)
    plain = ("--soft", "--variant", "plain_error")
    assert "plain_error has no label for the shares in mc_value" in run(file, "--out", out, *plain, status=2)
    monkeypatch.setenv("RANK", "0")
    assert "runs in one process" in run(file, "--out", out, status=1)
