"""Training in two processes (gloo, without a GPU) equals training in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pathfinder.training.trainer import fit, newest_checkpoint
from tests.support.training import settings, small_setup
from tests.training.train_in_processes import CHANGED


@pytest.mark.slow
@pytest.mark.parametrize(
    "way, sealed", [("replicas", "model.safetensors"), ("shards", "pytorch_model_fsdp_0/__1_0.distcp")]
)
def test_two_processes_take_the_steps_of_one(tmp_path: Path, root: Path, way: str, sealed: str) -> None:
    """The two processes use gradient checkpointing, the single one does not."""
    single, prompter, examples = small_setup()
    rows = fit(single, prompter, examples, settings(**CHANGED), tmp_path / "single", examples[:2]).rows
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
    for name, value in single.state_dict().items():
        assert torch.allclose(value, weights[name], atol=1e-5), name
    checkpoint = newest_checkpoint(tmp_path / "checkpoints")
    assert checkpoint is not None
    digests = json.loads((checkpoint / "complete.json").read_text())
    assert {"rng_state_0.pth", "rng_state_1.pth", sealed} <= digests.keys()
    assert ("torn, removed" in done.stderr) == (way == "shards")
