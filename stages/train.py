"""Train one variant of the PRM.

Reads   artifacts/train/{train,test}.parquet, artifacts/raw/models/base, params: train
Writes  models/<variant>/, metrics/train/<variant>.json, metrics/train/<variant>_log.json
Run     python -m stages.train full

Progress (checkpoints) lies in .pathfinder/train/<digest of everything that determines the weights>/, so the same
command after a kill goes on where it stopped and ends with the same bytes.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from stages.core import attention, io, model, passes, prompts, records, tokens, trainer, training, tree
from stages.core.params import Train, load_params
from stages.core.prompts import VARIANTS
from stages.core.scoring import MODEL_FILE
from stages.lineage.record import recorded

TRAIN, TEST = Path("artifacts/train/train.parquet"), Path("artifacts/train/test.parquet")
BASE = Path("artifacts/raw/models/base")
PROGRESS = Path(".pathfinder/train")
_LOG_ROWS = 400


def main(argv: Sequence[str] | None = None) -> None:
    """Train the variant named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m stages.train", description="Train one variant of the PRM.")
    parser.add_argument("variant", choices=VARIANTS)
    variant = parser.parse_args(argv).variant
    settings = load_params().train
    with recorded("train", variant):
        train(variant, settings)


def train(variant: str, settings: Train) -> None:
    """Train ``variant`` and write its model folder and metrics."""
    if model.device() == "cpu":
        torch.set_num_threads(1)  # sums then run in one order: the same bytes whatever the number of cores
    base = model.resolve(BASE)
    progress = PROGRESS / _identity(variant, settings, base)
    tokenizer = tokens.load_tokenizer(base)
    network = model.load_model(base)
    added = model.add_labels(network, tokenizer)
    attention.use_trees(network)
    prompter = passes.Prompter(tokenizer, VARIANTS[variant])
    read = [io.read_parquet(path, records.TREES) for path in (TRAIN, TEST)]
    learn, test = (training.read_examples(f, prompter, settings.token_budget, settings.weighting) for f in read)
    rows = trainer.fit(network, prompter, learn, settings, progress)
    figures = _figures(learn, test, rows)
    figures["test_labels"] = training.evaluate(network, test, prompter, settings.token_budget)
    _save(network, tokenizer, variant, settings, added)
    io.write_json(Path(f"metrics/train/{variant}_log.json"), _log(rows))
    io.write_json(Path(f"metrics/train/{variant}.json"), figures)
    shutil.rmtree(progress, ignore_errors=True)


def _identity(variant: str, settings: Train, base: Path) -> str:
    """Digest of everything that determines the weights: data, base, parameters, code and library versions."""
    code = (attention, model, passes, prompts, tokens, trainer, training, tree)
    return io.digest_of(
        {
            "variant": variant,
            "settings": settings.model_dump(),
            "data": io.sha256_file(TRAIN),
            "base": {path.name: io.sha256_file(path) for path in sorted(base.iterdir()) if path.is_file()},
            "code": {module.__name__: io.sha256_file(Path(str(module.__file__))) for module in code},
            "versions": [torch.__version__, transformers.__version__],
        }
    )


def _save(network: Any, tokenizer: Any, variant: str, settings: Train, added: list[str]) -> None:
    with io.atomic_folder(Path("models") / variant) as folder:
        network.config._attn_implementation = "sdpa"
        network.config.name_or_path = ""
        network.config.use_cache = True
        network.to(model.DTYPES[settings.dtype]).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        labels = tokens.label_ids(tokenizer)
        about = {
            "variant": variant,
            "labels": [mark.label for mark in (*VARIANTS[variant].first, *VARIANTS[variant].second)],
            "token_ids": {"<+>": labels.good, "<->": labels.bad, "<extra>": labels.mask},
            "tokens_added": added,
            "train": settings.model_dump(),
        }
        io.write_json(folder / MODEL_FILE, about)
        for file in folder.iterdir():
            file.chmod(0o644)


def _figures(learn: list[Any], test: list[Any], rows: list[dict[str, float]]) -> dict[str, Any]:
    trees, tail = len(learn) + len(test), rows[-max(1, len(rows) // 10) :]
    tokens_used = sum(len(example.tree) for example in learn)
    return {
        "read": trees,
        "kept": trees,
        "dropped": {},
        "quarantined": {},
        "train_trees": len(learn),
        "test_trees": len(test),
        "train_records": sum(example.records for example in learn),
        "train_samples": sum(example.samples for example in learn),
        "tokens_an_epoch": tokens_used,
        "tokens_an_epoch_as_samples": sum(example.sample_tokens for example in learn),
        "optimiser_steps": len(rows),
        "final_loss": sum(row["loss"] for row in tail) / len(tail),
    }


def _log(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """At most ``_LOG_ROWS`` rows: means over equal stretches of steps; the last step of each names it."""
    stretch = -(-len(rows) // _LOG_ROWS)
    out = []
    for start in range(0, len(rows), stretch):
        part = rows[start : start + stretch]
        kinds = [key for key in part[-1] if key == "loss" or key.startswith("accuracy_")]
        row = {kind: sum(r[kind] for r in part if kind in r) / sum(kind in r for r in part) for kind in kinds}
        out.append({"step": part[-1]["step"], **row, "learning_rate": part[-1]["learning_rate"]})
    return out


if __name__ == "__main__":
    main()
