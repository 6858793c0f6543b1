"""Training of a few steps with checkpoints, for runs under one fault at one system call."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed.fsdp
import torch.distributed.tensor  # here, so that not every forked process imports them

from ground.io import atomic_file, read_json, write_json
from pathfinder.models.slices import write_tensors
from pathfinder.training.checkpoints import (
    STATE,
    Group,
    Writer,
    newest_checkpoint,
    read_optimiser,
    read_weights,
    step_of,
)

PROGRESS = Path("progress")
_STEPS = 4


def checkpoints_before(_: list[str]) -> None:
    """Two of the steps are done."""
    _train(2)


def checkpoints(_: list[str]) -> None:
    """Resume, train to the end, write the weights and delete the checkpoints."""
    network = _train(_STEPS)
    tensors = {name: parameter.detach() for name, parameter in network.named_parameters()}
    with atomic_file(Path("weights.safetensors")) as path:
        write_tensors(path, tensors, {})
    if PROGRESS.exists():
        shutil.rmtree(PROGRESS)


def _train(steps: int) -> torch.nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    network = torch.nn.Linear(8, 4)
    optimiser: Any = torch.optim.AdamW(network.parameters(), lr=0.1)
    done = 0
    if (newest := newest_checkpoint(PROGRESS)) is not None:
        read_weights(newest, network)
        read_optimiser(newest, network, optimiser)
        done = step_of(newest)
        assert read_json(newest / STATE) == {"step": done}
    writer = Writer(PROGRESS, 2, Group())
    for step in range(done + 1, steps + 1):
        generator = torch.Generator().manual_seed(step)
        loss = network(torch.rand(16, 8, generator=generator)).square().sum()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        write_json(PROGRESS / f"checkpoint-{step}" / STATE, {"step": step})
        writer.save(step, network, optimiser)
    writer.finish()
    return network


def warm() -> None:
    """Let torch import what its first optimiser step needs: not every forked process does it again."""
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.AdamW([weight]).step()


warm()
