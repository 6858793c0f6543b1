"""The same model and rows trained by TRL's PRMTrainer on padded rows and here on trees, in one process.

Run: python -m tests.training.trl_cost TRL FOLDER LINES

TRL is a folder with trl 1.13; the packages of this environment come first. FOLDER is empty. LINES is the number of
lines of PRM800K, whose rated completions are the rows; solutions of a line share their first steps.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer, Qwen2ForTokenClassification

from pathfinder.models.folders import open_model
from pathfinder.training.run import train
from pathfinder.training.stepwise import read, split
from tests.support.models import qwen_config, sides, world_tokenizer
from tests.support.own_steps import world_rows, write_lines
from tests.support.training import settings

Row = dict[str, Any]
_RATE = 1e-3


def by_trl(model: Any, tokenizer: Any, rows: list[Row], batch: int, epochs: int, folder: Path) -> Any:
    """A trainer of TRL after its training."""
    datasets, library = importlib.import_module("datasets"), importlib.import_module("trl.experimental.prm")
    config = library.PRMConfig(
        str(folder / "trl"),
        per_device_train_batch_size=batch,
        num_train_epochs=epochs,
        learning_rate=_RATE,
        lr_scheduler_type="cosine",
        warmup_steps=math.ceil(0.1 * epochs * math.ceil(len(rows) / batch)),
        optim="adamw_torch_fused",
        max_length=None,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        logging_steps=1,
        disable_tqdm=True,
    )
    data = datasets.Dataset.from_list(rows)
    trainer = library.PRMTrainer(model, config, train_dataset=data, processing_class=tokenizer)
    trainer.train()
    return trainer


def here(base: Path, rows: list[Row], batch: int, epochs: int, folder: Path) -> Any:
    """The result of our training."""
    trees = split(read(write_lines(folder / "rows.jsonl", rows)).trees(), 0.0, 1)
    chosen = settings(learning_rate=_RATE, batch_samples=2 * batch, records_per_tree=batch, epochs=float(epochs))
    return train(open_model(base), "no_subtasks", chosen, folder / f"{batch}-{epochs}", lambda: trees, "", "\n")


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """A result, and the processor seconds that it took."""
    start = time.process_time()
    return work(), time.process_time() - start


def main(library: str, folder: Path, lines: int) -> dict[str, Any]:
    sys.path.append(library)
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    torch.set_num_threads(1)
    base, made = folder / "base", world_tokenizer()
    made.save_pretrained(base)
    make: Any = Qwen2ForTokenClassification
    make(qwen_config(made, len(made), num_labels=2, **sides(256, 1024, 4, 4, 4))).save_pretrained(base)
    tokenizer: Any = AutoTokenizer.from_pretrained(base)

    def trl(rows: list[Row], batch: int, epochs: int) -> Any:
        model = AutoModelForTokenClassification.from_pretrained(base)
        return by_trl(model, tokenizer, rows, batch, epochs, folder)

    rows = world_rows(lines)
    few = [*{row["prompt"]: row for row in rows}.values()][:16]  # one solution of each problem, so no label is shared
    theirs, ours = trl(few, len(few), 5), here(base, few, 10**4, 5, folder)
    weights = theirs.model.state_dict()
    log = theirs.state.log_history
    result: dict[str, Any] = {
        "losses": [[row["loss"] for row in kept if "loss" in row] for kept in (log, ours.rows)],
        "weights_differ": max(
            float((value - weights[name]).abs().max()) for name, value in ours.network.state_dict().items()
        ),
    }
    mine, seconds = timed(lambda: here(base, rows, 64, 1, folder))
    batch = round(len(rows) / mine.figures.optimiser_steps)
    other, others = timed(lambda: trl(rows, batch, 1))
    return result | {
        "rows": len(rows),
        "labels": [sum(len(row["labels"]) for row in rows), mine.figures.train_records],
        "steps": [other.state.global_step, mine.figures.optimiser_steps],
        "seconds": [others, seconds],
    }


if __name__ == "__main__":
    print("\n" + json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
