"""The processes of test_trainer train the project's way on the samples that the real ``Trainer`` was given."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import torch
from safetensors.torch import save_file

from ground.io import write_json
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.records import TREES
from pathfinder.training.examples import Example, read_examples
from pathfinder.training.trainer import fit
from pathfinder.tree.attention import use_trees
from pathfinder.tree.passes import Prompter
from tests.published.samples import tokenizer, trees
from tests.published.trainer import ACCUMULATED, AT_ONCE, DEVICES, EPOCHS, RATE, SEED, small_model
from tests.support.training import settings

BATCH = DEVICES * AT_ONCE * ACCUMULATED


def examples(weighting: str) -> tuple[Prompter, list[Example]]:
    """The project's examples of ``samples.trees``."""
    prompter = Prompter(tokenizer(), VARIANTS["full"])
    return prompter, read_examples(pl.DataFrame(trees(), schema=TREES), prompter, 4096, weighting)


def train(folder: Path, weighting: str, budget: int) -> None:
    """Train on the CPU, resuming in ``folder``; the first process writes rows and weights there."""
    chosen = settings(
        weighting=weighting, batch_samples=BATCH, epochs=EPOCHS, seed=SEED, learning_rate=RATE, save_every=3,
        token_budget=budget, gradient_checkpointing=True,
    )  # fmt: skip
    model = small_model()
    use_trees(model)
    fitted = fit(model, *examples(weighting), chosen, folder / "checkpoints")
    if torch.distributed.get_rank() == 0:
        weights = {name: weight.detach().contiguous() for name, weight in model.named_parameters()}
        save_file(weights, folder / "weights.safetensors")
        write_json(folder / "rows.json", fitted.rows)
