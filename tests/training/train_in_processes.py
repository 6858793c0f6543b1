"""The work of the processes of test_processes: train the small model, or compute the gradient of one step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ground.io import write_json
from pathfinder.core.params import Lora, Train
from pathfinder.models.folders import open_model
from pathfinder.models.model import load_model
from pathfinder.models.sharding import cut
from pathfinder.training import checkpoints, trainer
from pathfinder.training.network import gathered_network, load_network, merge
from pathfinder.training.trainer import Fitted, fit
from pathfinder.tree.attention import use_trees
from tests.support.models import exact_rms_norms, plain_tokenizer
from tests.support.processes import shard_on_cpu
from tests.support.training import settings, small_setup

CHANGED = {"batch_samples": 30, "token_budget": 700, "epochs": 3.0}
"""Steps of three trees in several passes, so that one of two processes has an extra pass."""
ONE_STEP = {"batch_samples": 10**6, "token_budget": 400, "epochs": 1.0, "save_every": 10**6}
"""All six trees in one step, in more passes than some processes have."""
WAYS = ("replicas", "shards")
VARIATIONS: dict[str, tuple[int, Any, Any]] = {
    "adapter": (4, "float32", "float32"),
    "adapter over bfloat16": (4, "bfloat16", "bfloat16"),
    "bfloat16": (0, "float32", "bfloat16"),
}
"""Rank of the adapter, type of its base, type of the calculation."""


class Stop(Exception):
    """Ends the training after the first gradient."""


def weights_of(network: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


def train_once(folder: Path, network: Any) -> tuple[Fitted, dict[str, torch.Tensor]]:
    """Train with gradient checkpointing, resuming in ``folder``; the weights are complete in the first process."""
    _, prompter, examples = small_setup()
    chosen = settings(**CHANGED, gradient_checkpointing=True)
    fitted = fit(network, prompter, examples, chosen, folder, examples[:2])
    return fitted, weights_of(network) if fitted.gather_weights is None else fitted.gather_weights()


def whole_model(base: Path) -> Any:
    """The model saved in ``base``."""
    network = load_model(open_model(base))
    use_trees(network)
    return network


def sharded_model(base: Path) -> Any:
    """The model saved in ``base``, of which each process reads its own rows and none loads the whole."""

    def whole(*_: Any, **__: Any) -> None:
        raise AssertionError("a process loaded the whole model")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pathfinder.models.model.load_model", whole)
        network, _ = load_network(base, plain_tokenizer(), settings())
    return network


def train(folder: Path, way: str, base: Path) -> None:
    """Train, and save weights and rows in ``folder``. Shards then lose their newest checkpoint and train again."""
    if way == "shards":
        shard_on_cpu(Path.cwd())
    first = torch.distributed.get_rank() == 0
    make = sharded_model if way == "shards" else whole_model
    fitted, weights = train_once(folder / "checkpoints", make(base))
    if way == "shards":
        newest = max((folder / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        torch.distributed.barrier()
        if first:
            (newest / "part-00001-of-00002.safetensors").write_bytes(b"torn")
        torch.distributed.barrier()
        _, again = train_once(folder / "checkpoints", sharded_model(base))
        assert not first or all(torch.equal(value, again[name]) for name, value in weights.items())
    if first:
        save_file({name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors")
        write_json(folder / "rows.json", fitted.rows)


def variation(name: str) -> Train:
    """The training parameters of a case of VARIATIONS."""
    rank, base_dtype, dtype = VARIATIONS[name]
    lora = Lora(rank=rank, alpha=8, base_dtype=base_dtype, targets=["q_proj", "v_proj"])
    return settings(**CHANGED, dtype=dtype, lora=lora)


def train_variation(folder: Path, base: Path, name: str) -> Fitted:
    """Train a case of VARIATIONS, and save the whole network after it."""
    _, prompter, examples = small_setup()
    chosen, tokenizer = variation(name), plain_tokenizer()
    network, _ = load_network(base, tokenizer, chosen)
    fitted = fit(network, prompter, examples, chosen, folder / "checkpoints")
    if fitted.gather_weights is not None:
        weights = fitted.gather_weights()
        if torch.distributed.get_rank() > 0:
            return fitted
        network = gathered_network(base, tokenizer, chosen, weights)
    network = merge(network) if chosen.lora.rank else network
    save_file({key: value.float().contiguous() for key, value in weights_of(network).items()}, folder / "model.st")
    return fitted


def train_variations(folder: Path, base: Path) -> None:
    """Train every case of VARIATIONS sharded, and save its losses."""
    shard_on_cpu(Path.cwd())
    for name in VARIATIONS:
        fitted = train_variation(folder / name, base, name)
        assert any(hasattr(parameter, "full_tensor") for parameter in fitted.network.parameters())
        if torch.distributed.get_rank() == 0:
            write_json(folder / name / "losses.json", [row["loss"] for row in fitted.rows])


def continue_training(folder: Path, base: Path) -> None:
    """Train the sharded model from the checkpoint of another number of processes."""
    shard_on_cpu(Path.cwd())
    _, weights = train_once(folder / "checkpoints", sharded_model(base))
    if torch.distributed.get_rank() == 0:
        save_file({name: value.contiguous() for name, value in weights.items()}, folder / "continued.safetensors")


def start_after_a_torn_checkpoint(folder: Path) -> None:
    """The work of every process before it trains: find a checkpoint, and see whether there is room for more."""
    group = checkpoints.Group(torch.distributed.get_rank(), torch.distributed.get_world_size())
    assert checkpoints.newest_checkpoint(folder, group) is None
    assert checkpoints.check_room(folder, 1, 0.0) == 2


def gradient(folder: Path, dtype: torch.dtype, prepare: Callable[[Any], Any] = lambda model: model) -> Any:
    """The gradient of the trainer's first step, by name, on the model that ``prepare`` makes of the small one."""
    model, prompter, examples = small_setup()
    found: dict[str, torch.Tensor] = {}

    def stop(trained: Any, *_: Any) -> float:
        for name, parameter in trained.named_parameters():
            whole: Any = parameter.grad
            found[name] = (whole.full_tensor() if hasattr(whole, "full_tensor") else whole).clone()
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        exact_rms_norms(patch)
        patch.setattr(trainer, "_clipped_norm", stop)
        with pytest.raises(Stop):
            fit(prepare(model.to(dtype)), prompter, examples, settings(**ONE_STEP), folder)
    return found


def gradients(folder: Path) -> None:
    """Save the gradients of replicas and of shards in both types to ``folder``."""

    def sharded(model: Any) -> Any:
        cut(model, "float32")
        return model

    for way in WAYS:
        if way == "shards":
            shard_on_cpu(Path.cwd())
        for dtype in (torch.float32, torch.float64):
            place = folder / f"{way}-{dtype}"
            found = gradient(place, dtype, sharded if way == "shards" else lambda model: model)
            if torch.distributed.get_rank() == 0:
                save_file(found, folder / f"{way}-{dtype}.safetensors")
