"""Training in two processes (gloo, without a GPU) does what one process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pathfinder.training import training
from pathfinder.training.trainer import fit, sound_checkpoint
from tests.support.models import plain_tokenizer
from tests.training.test_training import settings, start
from tests.training.train_in_processes import CHANGED


@pytest.mark.slow
@pytest.mark.parametrize(
    "way, sealed", [("replicas", "model.safetensors"), ("shards", "pytorch_model_fsdp_0/__1_0.distcp")]
)
def test_two_processes_take_the_steps_of_one(tmp_path: Path, root: Path, way: str, sealed: str) -> None:
    """Also with gradient checkpointing in the two and without it in the one."""
    one, prompter, examples = start(plain_tokenizer())
    rows = fit(one, prompter, examples, settings(**CHANGED), tmp_path / "one", examples[:2]).rows
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.training.train_in_processes", str(tmp_path), way]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    two = json.loads((tmp_path / "rows.json").read_text())
    assert two["processes"] == 2
    assert len(rows) == len(two["rows"]) > 3
    for mine, theirs in zip(rows, two["rows"], strict=True):
        assert mine == pytest.approx(theirs, rel=2e-4)
    assert any("held_out_loss_math" in row for row in rows)
    weights = load_file(tmp_path / "model.safetensors")
    for name, value in one.state_dict().items():
        assert torch.allclose(value, weights[name], atol=1e-5), name
    checkpoint = sound_checkpoint(tmp_path / "checkpoints")
    assert checkpoint is not None
    assert {"rng_state_0.pth", "rng_state_1.pth", sealed} <= json.loads(
        (checkpoint / "complete.json").read_text()
    ).keys()
    assert ("torn, removed" in done.stderr) == (way == "shards")


def test_trees_are_shared_out_evenly_and_all_of_them() -> None:
    sizes = [900, 20, 30, 400, 410, 90, 5]
    for ranks in (1, 2, 3, 9):
        shares = training.share_out(sizes, ranks)
        assert sorted(item for share in shares for item in share) == list(range(len(sizes)))
        loads = [sum(sizes[item] for item in share) for share in shares]
        assert max(loads) <= max(max(sizes), sum(sizes) / ranks * 4 / 3)
    assert training.share_out(sizes, 1) == [list(range(len(sizes)))]
