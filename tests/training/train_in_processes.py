"""What test_training_processes starts under torchrun: train the small model, save it on the first process.

``shards`` cuts the weights over the processes as infra/accelerate/machine.yaml does over GPUs, and then trains again
from the checkpoint before the last, which is torn.
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
from pathfinder.training.trainer import Fitted, fit, join, leave
from tests.support.models import plain_tokenizer
from tests.training.test_training import settings, start

CHANGED = {"batch_samples": 30, "token_budget": 700, "epochs": 3.0}
"""Steps of three trees in several passes: one of two processes has a pass more than the other."""


def pretend_to_have_cards(root: Path) -> None:
    """accelerate shards on GPUs alone; torch does so anywhere. The settings are those of the shipped file."""
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


def once(folder: Path) -> tuple[Fitted, dict[str, torch.Tensor]]:
    model, prompter, examples = start(plain_tokenizer())
    chosen = settings(**CHANGED, gradient_checkpointing=True)
    fitted = fit(model, prompter, examples, chosen, folder / "checkpoints", examples[:2])
    return fitted, model.state_dict() if fitted.whole_weights is None else fitted.whole_weights()


def main(folder: Path, way: str) -> None:
    torch.set_num_threads(1)
    if way == "shards":
        pretend_to_have_cards(Path.cwd())
    rank, processes = join(cpu=True)
    fitted, weights = once(folder)
    if way == "shards":
        newest = max((folder / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
        torch.distributed.barrier()
        if rank == 0:
            (newest / "pytorch_model_fsdp_0/__1_0.distcp").write_bytes(b"torn")
        torch.distributed.barrier()
        _, again = once(folder)
        if rank == 0:
            assert all(torch.equal(value, again[name]) for name, value in weights.items())
    if rank == 0:
        save_file({name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors")
        write_json(folder / "rows.json", {"processes": processes, "rows": fitted.rows})
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
