"""What test_training_processes starts under torchrun: train the small model, save it on the first process."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from stages.core.io import write_json
from stages.core.trainer import fit, join, leave
from tests.core.test_training import settings, start
from tests.models import plain_tokenizer

CHANGED = {"batch_samples": 30, "token_budget": 700, "epochs": 3.0}
"""Steps of three trees in several passes: one of two processes has a pass more than the other."""


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    rank, processes = join(cpu=True)
    model, prompter, examples = start(plain_tokenizer())
    fitted = fit(model, prompter, examples, settings(**CHANGED, gradient_checkpointing=True), folder / "checkpoints")
    if rank == 0:
        weights = {name: value.contiguous() for name, value in model.state_dict().items()}
        save_file(weights, folder / "model.safetensors")
        write_json(folder / "rows.json", {"processes": processes, "rows": fitted.rows})
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
