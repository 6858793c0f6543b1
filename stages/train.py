"""Train one run: a variant of the PRM on a data mix with a seed.

Reads   artifacts/train/{train,test}.parquet, artifacts/raw/models/base, params: train, mixes,
        build.seed
Writes  models/<run>/, metrics/train/<run>.json, metrics/train/<run>_log.json
Run     python -m stages.train full

Progress (checkpoints) lies in .pathfinder/train/<digest of everything that determines the weights>/, so the same
command after a kill goes on where it stopped and ends with the same bytes. On several GPUs or machines the processes
are started as ``train.launch`` names, or by hand (docs/training.md); the first of them writes.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers

from pathfinder.core import io, mixes, records
from pathfinder.core.params import Train, load_params
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.runs import Run, parse_run
from pathfinder.models import footprint, launch, model, tokens
from pathfinder.models.description import MODEL_FILE
from pathfinder.provenance.identity import code_digest
from pathfinder.provenance.stage import stage
from pathfinder.training import adapter, trainer, training
from pathfinder.tree import attention, passes

TRAIN, TEST = Path("artifacts/train/train.parquet"), Path("artifacts/train/test.parquet")
BASE = Path("artifacts/raw/models/base")
PROGRESS = Path(".pathfinder/train")
_LOG_ROWS = 400
_CURVE_TREES = 40
"""Held-out trees of the learning curve, evenly spaced; the figures after training are of all."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The share of the Monte-Carlo records that is trained on, and the seed of their order."""

    share: float
    seed: int


@stage
def main(name: Annotated[str, "VARIANT[-MIX][-sSEED], as in params.yaml"]) -> None:
    """Train one run, in this process or in those that train.launch starts."""
    run = parse_run(name)
    params = load_params()
    settings = params.train.model_copy(update={"seed": params.train.seed + run.seed - 1})
    mix = Selection(mixes.share_of(params.mixes, run.mix), params.build.seed)
    if not launch.launched():
        footprint.require("train", params, {"base": BASE})
    if settings.launch and not launch.launched():
        launch.launch(settings.launch, ["stages.train", run.name])
    else:
        train(run, settings, mix)


def train(run: Run, settings: Train, mix: Selection) -> None:
    """Train ``run`` and write its model folder and metrics."""
    if model.device() == "cpu":
        torch.set_num_threads(1)  # sums then run in one order: the same bytes whatever the number of cores
    rank, _ = trainer.join(cpu=model.device() == "cpu")
    base = model.resolve(BASE)
    progress = PROGRESS / _identity(run, settings, mix, base)
    tokenizer = tokens.load_tokenizer(base)
    network, added = _network(base, tokenizer, settings)
    prompter = passes.Prompter(tokenizer, VARIANTS[run.variant])
    schema = records.SOFT_TREES if settings.soft_labels else records.TREES
    read = [io.read_parquet(path, schema) for path in (TRAIN, TEST)]
    read[0] = mixes.select(read[0], mix.share, mix.seed)  # held out is the same for every mix
    budget, soft = settings.token_budget, settings.soft_labels
    learn = training.read_examples(
        read[0], prompter, budget, settings.weighting, records_per_tree=settings.records_per_tree, soft=soft
    )
    test = training.read_examples(read[1], prompter, budget)
    some = test[:: -(-len(test) // _CURVE_TREES) or 1]
    fitted = trainer.fit(network, prompter, learn, settings, progress, some)
    if rank == 0 or fitted.whole_weights is not None:  # every process has a part of sharded weights
        held_out = training.evaluate(fitted.network, test, prompter, budget)
    if fitted.whole_weights is not None:
        whole = fitted.whole_weights()
        if rank == 0:
            network, _ = _network(base, tokenizer, settings, "cpu")
            network.load_state_dict(whole)
    if rank == 0:
        figures = _figures(learn, test, fitted.rows)
        figures["sources"] = {
            str(name): mixes.records_of(part) for (name,), part in read[0].group_by("source", maintain_order=True)
        }
        figures["test_labels"] = held_out
        _save(network, tokenizer, run, settings, added)
        io.write_json(Path(f"metrics/train/{run.name}_log.json"), _log(fitted.rows))
        io.write_json(Path(f"metrics/train/{run.name}.json"), figures)
        shutil.rmtree(progress, ignore_errors=True)
    trainer.leave()


def _network(base: Path, tokenizer: Any, settings: Train, where: str | None = None) -> tuple[Any, list[str]]:
    """What is trained, and the label tokens that it was given; weights to be sharded wait in the machine's memory."""
    network: Any = model.load_model(base, where=where or ("cpu" if launch.sharded() else None))
    added = model.add_labels(network, tokenizer)
    attention.use_trees(network)
    if settings.lora.rank:
        torch.manual_seed(settings.seed)
        network = adapter.with_adapter(network, settings.lora, tokens.label_ids(tokenizer))
    return network, added


def _identity(run: Run, settings: Train, mix: Selection, base: Path) -> str:
    """Digest of everything that determines the weights: data, base, parameters, code and library versions."""
    return io.digest_of(
        {
            "run": run.name,
            "settings": settings.model_dump(),
            "data": [io.sha256_file(TRAIN), mix.share, mix.seed],
            "base": {path.name: io.sha256_file(path) for path in sorted(base.iterdir()) if path.is_file()},
            "code": code_digest("train"),
            "launch": launch.configuration(settings.launch) if settings.launch else None,
            "versions": [torch.__version__, transformers.__version__],
        }
    )


def _save(network: Any, tokenizer: Any, run: Run, settings: Train, added: list[str]) -> None:
    with io.atomic_folder(Path("models") / run.name) as folder:
        if settings.lora.rank:
            adapter.save_adapter(network, folder)
            network = adapter.merged(network)
        network.config._attn_implementation = "sdpa"
        network.config.name_or_path = ""
        network.config.use_cache = True
        network.to(model.DTYPES[settings.dtype]).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        labels = tokens.label_ids(tokenizer)
        about = {
            "variant": run.variant,
            "labels": [mark.label for mark in (*VARIANTS[run.variant].first, *VARIANTS[run.variant].second)],
            "token_ids": {"<+>": labels.good, "<->": labels.bad, "<extra>": labels.mask},
            "tokens_added": added,
            "train": settings.model_dump(),
        }
        io.write_json(folder / MODEL_FILE, about)
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


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
        kinds = dict.fromkeys(key for r in part for key in r if key.startswith(("loss", "accuracy_", "held_out_")))
        row = {kind: sum(r[kind] for r in part if kind in r) / sum(kind in r for r in part) for kind in kinds}
        out.append({"step": part[-1]["step"], **row, "learning_rate": part[-1]["learning_rate"]})
    return out


if __name__ == "__main__":
    main()
