from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import peft
import polars as pl
import pytest
import torch
import yaml

from ground.io import sha256_file, write_parquet
from pathfinder.core.params import Lora, load_params
from pathfinder.core.runs import parse_run
from pathfinder.core.steps import Solution
from pathfinder.models.folders import open_model
from pathfinder.models.model import add_labels, load_model
from pathfinder.models.tokens import load_tokenizer
from pathfinder.prm.scoring import Scorer
from stages import train
from tests.support import warm
from tests.support.training import frame, training_project

OUTS = ("models/full/model.safetensors", "metrics/train/full.json", "metrics/train/full_log.json")


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Callable[..., Path]:
    """Make a project folder with a small training set, a random base model and the project's parameters."""

    return lambda name, **changed: training_project(tmp_path / name, root, **changed)


def start(folder: Path, root: Path, **variables: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables}
    command = [sys.executable, "-m", "stages.train", "full"]
    return warm.Popen(command, cwd=folder, env=environment | warm.inherited(), stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()


def test_a_killed_run_ends_with_the_bytes_of_an_uninterrupted_one(project: Callable[..., Path], root: Path) -> None:
    whole, killed = project("whole"), project("somewhere/else/killed")
    finish(start(whole, root))
    process = start(killed, root)
    deadline = time.monotonic() + 200
    while not list(killed.glob(".pathfinder/train/*/checkpoint-*/part-*.json")) and time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "models/full").exists()
    finish(start(killed, root))
    for out in OUTS:
        assert (killed / out).read_bytes() == (whole / out).read_bytes(), out
    names = {path.name for path in (whole / "models/full").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "pathfinder.json", "README.md"} <= names
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
    assert json.loads((whole / "models/full/pathfinder.json").read_text())["variant"] == "full"
    card = (whole / "models/full/README.md").read_text()
    assert sha256_file(whole / "artifacts/train/train.parquet") in card
    assert "      prm800k: 108\n" in card
    solution = Solution("s", "P", ("a",))
    scorer = Scorer(open_model(whole / "models/full"))
    assert scorer.known.unlike(Solution("s", "P", ("A zebra.",))) == ("unknown words or signs: ., a, p, zebra",)
    scores = scorer.score([solution])
    assert 0 <= scores[0][0].reward <= 1
    (whole / "models/full/README.md").unlink()
    assert Scorer(open_model(whole / "models/full")).score([solution]) == scores


def test_a_published_epoch_holds_both_samples_of_each_record(project: Callable[..., Path], root: Path) -> None:
    """216 samples give seven steps of 32; the last one is filled up with the first eight samples."""
    folder = project("device", weighting="device", batch_samples=32, epochs=2.0)
    finish(start(folder, root))
    figures = json.loads((folder / "metrics/train/full.json").read_text())
    names = ("train_records", "train_samples", "train_trees", "optimiser_steps")
    assert [figures[name] for name in names] == [108, 216, 216, 14]
    assert figures["tokens_an_epoch"] == figures["tokens_an_epoch_as_samples"] - 216
    used = pl.read_parquet(folder / "artifacts/used/full.parquet")
    assert used["id"].n_unique() == len(used) == 108
    for epoch in (range(1, 8), range(8, 15)):
        steps = [len([step for step in row if step in epoch]) for row in used["steps"].to_list()]
        assert min(steps) >= 1
        assert max(steps) <= 4
        assert max(steps) > 1, "the samples of a record are in different steps"


def test_a_run_that_starts_again_reads_the_held_out_trees_again(
    project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The killed run has stored its examples. An excluded held-out tree leaves the training set as it is."""
    folder = project("excluded", epochs=1.0)
    monkeypatch.chdir(folder)
    settings = load_params().train
    learn = partial(train.train, parse_run("full"), settings, 1.0, 1)
    with monkeypatch.context() as killed, pytest.raises(InterruptedError):
        killed.setattr("pathfinder.training.trainer.fit", raising)
        learn()
    assert list(folder.glob(".pathfinder/train/*/examples"))
    write_parquet(train.TEST, frame(2))
    learn()
    figures = json.loads(Path("metrics/train/full.json").read_text())
    assert figures["test_labels"]["math"]["n"] == 5 + 4


def raising(*_: Any) -> None:
    raise InterruptedError


@pytest.mark.campaign
def test_an_adapter_trained_on_two_machines(project: Callable[..., Path], root: Path) -> None:
    """The same command on each machine. The merged folder scores as the base model with the adapter does."""
    lora = Lora(rank=4, alpha=8, base_dtype="float32", targets=["q_proj", "v_proj", "down_proj"])
    folder = project("adapted", lora=lora, launch="pair", soft_labels=True, records_per_tree=2, epochs=2.0)
    pair = yaml.safe_load((root / "infra/accelerate/cpu.yaml").read_text()) | {"num_machines": 2}
    (folder / "infra/accelerate").mkdir(parents=True)
    (folder / "infra/accelerate/pair.yaml").write_text(yaml.safe_dump(pair))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    machines = [
        start(folder, root, NODE_RANK=number, MASTER_ADDR="127.0.0.1", MASTER_PORT=port) for number in ("1", "0")
    ]
    for machine in machines:
        finish(machine)
    figures = json.loads((folder / "metrics/train/full.json").read_text())
    assert figures["train_records"] == 12 * 5 + 12 * 4
    assert figures["train_trees"] == 12 * 3 + 12 * 2
    scorer = Scorer(open_model(folder / "models/full"))
    solution = Solution("s", "What is 1?", ("first 1", "then more"))
    rewards = [score.reward for score in scorer.score([solution])[0]]
    names = {path.name for path in (folder / "models/full/adapter").iterdir()}
    assert names == {"adapter_model.safetensors", "adapter_config.json"}
    base = load_model(open_model(folder / "artifacts/raw/models/base"))
    add_labels(base, load_tokenizer(folder / "artifacts/raw/models/base"))
    before = load_model(open_model(folder / "models/full")).state_dict()
    unchanged = {name for name, value in base.state_dict().items() if torch.equal(value, before[name])}
    assert any("mlp.up_proj" in name for name in unchanged)
    assert not any("q_proj.weight" in name or "embed_tokens" in name for name in unchanged)
    again = peft.PeftModel.from_pretrained(base, folder / "models/full/adapter").merge_and_unload()
    again.save_pretrained(folder / "models/again")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "pathfinder.json"):
        shutil.copy(folder / "models/full" / name, folder / "models/again" / name)
    assert [s.reward for s in Scorer(open_model(folder / "models/again")).score([solution])[0]] == pytest.approx(
        rewards, abs=1e-5
    )


@pytest.mark.parametrize(("rank", "checks"), [("", 1), ("0", 1), ("1", 0)])
def test_memory_is_checked_by_the_first_process_of_any_launcher(
    project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, rank: str, checks: int
) -> None:
    monkeypatch.chdir(project("memory"))
    monkeypatch.delenv("RANK", raising=False)
    if rank:
        monkeypatch.setenv("RANK", rank)
    checked: list[str] = []
    monkeypatch.setattr("stages.train.footprint.require", lambda stage, *_: checked.append(stage))
    monkeypatch.setattr("stages.train.train", lambda *_: None)
    train.main(["full"])
    assert len(checked) == checks


@pytest.mark.parametrize(("machine", "checks"), [("0", 1), ("1", 0)])
def test_another_machine_starts_without_a_base_model_and_waits(
    project: Callable[..., Path], root: Path, monkeypatch: pytest.MonkeyPatch, machine: str, checks: int
) -> None:
    """The first machine checks the memory; the second may be started before anything is downloaded."""
    folder = project("early", launch="nodes")
    shutil.copytree(root / "infra/accelerate", folder / "infra/accelerate")
    shutil.rmtree(folder / "artifacts/raw/models/base")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NODE_RANK", machine)
    checked: list[str] = []
    started: list[tuple[str, list[str]]] = []
    monkeypatch.setattr("stages.train.footprint.require", lambda stage, *_: checked.append(stage))
    monkeypatch.setattr("stages.train.launch.launch", lambda name, module, _: started.append((name, module)))
    train.main(["full"])
    assert started == [("nodes", ["stages.train", "full"])]
    assert len(checked) == checks
