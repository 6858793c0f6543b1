"""The program that test_processes starts under torchrun: train the small model and save it in the first process.

``shards`` cuts the weights over the processes as infra/accelerate/machine.yaml does over GPUs. It then tears the newest
checkpoint and trains again from the previous one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import PartialState
from accelerate.utils import DistributedType
from safetensors.torch import save_file

from pathfinder.core.io import write_json
from pathfinder.training.trainer import Fitted, fit
from tests.support.training import settings, small_setup

CHANGED = {"batch_samples": 30, "token_budget": 700, "epochs": 3.0}
"""Steps of three trees in several passes, so that one of two processes has an extra pass."""


def shard_on_cpu(root: Path) -> None:
    """Shard with the shipped settings. accelerate shards only on GPUs, torch on any device."""
    shipped = yaml.safe_load((root / "infra/accelerate/machine.yaml").read_text())["fsdp_config"]
    os.environ["ACCELERATE_USE_FSDP"] = "true"
    for key, value in shipped.items():
        os.environ[key.upper()] = str(value).lower() if isinstance(value, bool) else str(value)

    def backend(self: Any, *_: Any, **__: Any) -> tuple[str, Any]:
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        return "gloo", DistributedType.MULTI_GPU

    PartialState._prepare_backend = backend
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))


def train_once(folder: Path) -> tuple[Fitted, dict[str, torch.Tensor]]:
    model, prompter, examples = small_setup()
    chosen = settings(**CHANGED, gradient_checkpointing=True)
    fitted = fit(model, prompter, examples, chosen, folder / "checkpoints", examples[:2])
    return fitted, model.state_dict() if fitted.gather_weights is None else fitted.gather_weights()


def main(folder: Path, way: str) -> None:
    torch.set_num_threads(1)
    if way == "shards":
        shard_on_cpu(Path.cwd())
    processes = PartialState(cpu=True)
    fitted, weights = train_once(folder)
    if way == "shards":
        newest = max((folder / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        torch.distributed.barrier()
        if processes.is_main_process:
            (newest / "pytorch_model_fsdp_0/__1_0.distcp").write_bytes(b"torn")
        torch.distributed.barrier()
        _, again = train_once(folder)
        if processes.is_main_process:
            assert all(torch.equal(value, again[name]) for name, value in weights.items())
    if processes.is_main_process:
        save_file({name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors")
        write_json(folder / "rows.json", {"processes": processes.num_processes, "rows": fitted.rows})
    processes.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
