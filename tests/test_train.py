from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from stages.core.io import write_parquet
from stages.core.scoring import Scorer, Solution
from tests.core.test_training import frame, settings
from tests.models import plain_tokenizer, small_model

OUTS = ("models/full/model.safetensors", "metrics/train/full.json", "metrics/train/full_log.json")


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Callable[[str], Path]:
    """Make a project folder with a small training set, a random base model and the project's parameters."""

    def make(name: str) -> Path:
        folder = tmp_path / name
        write_parquet(folder / "artifacts/train/train.parquet", frame(24))
        write_parquet(folder / "artifacts/train/test.parquet", frame(4))
        tokenizer = plain_tokenizer()
        small_model(tokenizer).save_pretrained(folder / "artifacts/raw/models/base")
        tokenizer.save_pretrained(folder / "artifacts/raw/models/base")
        params = yaml.safe_load((root / "params.yaml").read_text())
        params["train"] = settings(epochs=6.0, save_every=3).model_dump()
        (folder / "params.yaml").write_text(yaml.safe_dump(params))
        (folder / "dvc.yaml").write_text("stages: {}\n")
        return folder

    return make


def start(folder: Path, root: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "stages.train", "full"]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()


def test_a_killed_run_ends_with_the_bytes_of_an_uninterrupted_one(project: Callable[[str], Path], root: Path) -> None:
    whole, killed = project("whole"), project("somewhere/else/killed")
    finish(start(whole, root))
    process = start(killed, root)
    deadline = time.monotonic() + 200
    while not list(killed.glob(".pathfinder/train/*/checkpoint-*/complete.json")) and time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "models/full").exists()
    finish(start(killed, root))
    for out in OUTS:
        assert (killed / out).read_bytes() == (whole / out).read_bytes(), out
    names = {path.name for path in (whole / "models/full").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "pathfinder.json"} <= names
    assert not any(name.endswith((".bin", ".pt", ".pth")) for name in names)
    for path in (whole / "models/full").iterdir():
        assert path.read_bytes() == (killed / "models/full" / path.name).read_bytes(), path.name
        assert str(whole).encode() not in path.read_bytes()
    assert not list(whole.glob(".pathfinder/train/*/checkpoint-*"))
    figures = json.loads((whole / "metrics/train/full.json").read_text())
    assert figures["train_records"] == 12 * 5 + 12 * 4
    assert set(figures["test_labels"]) == {"math", "consistency", "correctness"}
    rows = json.loads((whole / "metrics/train/full_log.json").read_text())
    assert rows[-1]["step"] == figures["optimiser_steps"]
    assert rows[-1]["loss"] < rows[0]["loss"]
    scorer = Scorer(whole / "models/full")
    assert scorer.variant.name == "full"
    assert 0 <= scorer.score([Solution("s", "P", ("a",))])[0][0].reward <= 1
