"""Train one run: a variant of the PRM on a data mix with a seed.

Reads   artifacts/train/{train,test}.parquet, artifacts/raw/models/base, params: train, mixes,
        build.seed
Writes  models/<run>/, artifacts/used/<run>.parquet, metrics/train/<run>.json, metrics/train/<run>_log.json
Run     python -m stages.train full

Checkpoints and the tokenised examples are stored in .pathfinder/train/<digest of everything that determines the
weights>/, so an interrupted run resumes and ends with the same bytes. ``train.launch`` can start several processes, and
so can a launcher by hand (docs/training.md). The first process writes the results.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers

from evidence.record.stage import stage
from ground import io
from ground.recording import code_digest, note
from pathfinder.core import mixes, records
from pathfinder.core.hub import HubModel, read_hub_model
from pathfinder.core.metrics import write_metrics
from pathfinder.core.params import Train, load_params
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.runs import Run, parse_run
from pathfinder.models import cards, folders, footprint, launch, model, tokens
from pathfinder.training import outcome, stored, trainer
from pathfinder.training.card import Learnt, deciding
from pathfinder.training.checkpoints import remove_progress
from pathfinder.training.examples import read_examples
from pathfinder.training.network import gathered_network, load_network, positions
from pathfinder.training.objective import evaluate
from pathfinder.tree.passes import Prompter

TRAIN, TEST = Path("artifacts/train/train.parquet"), Path("artifacts/train/test.parquet")
BASE = Path("artifacts/raw/models/base")
PROGRESS = Path(".pathfinder/train")
USED = Path("artifacts/used")
_CURVE_TREES = 40
"""Held-out trees of the learning curve, evenly spaced. The figures after training cover all held-out trees."""

_NAMED = 100
"""Records that the metrics name if they are left out."""


@stage
def main(name: Annotated[str, "VARIANT[-MIX][-sSEED], as in params.yaml"]) -> None:
    """Train one run, in this process or in those that train.launch starts."""
    run = parse_run(name)
    params = load_params()
    settings = params.train.model_copy(update={"seed": params.train.seed + run.seed - 1})
    share = mixes.share_of(params.mixes, run.mix)
    if launch.launched():
        if launch.is_first() and not launch.started_here():
            footprint.require("train", params, {"base": BASE})
        train(run, settings, share, params.build.seed)
    elif settings.launch:
        with cards.lease(launch.needed_cards(settings.launch)) as leased:
            if launch.is_first_machine():  # another one may be started before there is a base model
                footprint.require("train", params, {"base": BASE})
            launch.launch(settings.launch, ["stages.train", run.name], leased)
    else:
        with cards.confined(1):
            footprint.require("train", params, {"base": BASE})
            train(run, settings, share, params.build.seed)


def train(run: Run, settings: Train, share: float, mix_seed: int) -> None:
    """Train ``run`` and write its model folder and metrics; ``mix_seed`` orders the Monte-Carlo records."""
    if model.device() == "cpu":
        torch.set_num_threads(1)  # a fixed order of sums: the same bytes for any number of cores
    processes = launch.join(cpu=model.device() == "cpu")
    is_first = processes.is_main_process
    base = folders.open_model(BASE).files
    learnt = Learnt(run, _base_model(), io.sha256_file(TRAIN), share, mix_seed)
    progress = PROGRESS / _identity(learnt, settings)
    tokenizer = tokens.load_tokenizer(base)
    prompter = Prompter(tokenizer, VARIANTS[run.variant])
    sets, about = stored.prepared(
        progress / "examples", is_first, lambda: _examples(settings, prompter, share, mix_seed, base)
    )
    learn, test, left_out = sets["learn"], sets["test"], about.pop("left_out")
    network, added = load_network(base, tokenizer, settings)
    curve = test[:: -(-len(test) // _CURVE_TREES) or 1]
    fitted = trainer.fit(network, prompter, learn, settings, progress, curve)

    if is_first or fitted.gather_weights is not None:  # every process holds a part of sharded weights
        held_out = evaluate(fitted.network, test, prompter, settings.token_budget)
    if fitted.gather_weights is not None:
        weights = fitted.gather_weights()
        if is_first:
            network = gathered_network(base, tokenizer, settings, weights)
    if is_first:
        figures = outcome.figures(learn, test, fitted.rows, test_labels=held_out, **about)
        target, sources = Path("models") / run.name, about["sources"]
        outcome.save_model(network, tokenizer, prompter, settings, added, target, learnt, sources)
        io.write_parquet(USED / f"{run.name}.parquet", outcome.uses(learn, trainer.plan_of(learn, settings), left_out))
        log = [row.as_json() for row in outcome.thin_log(fitted.rows)]
        io.write_json(Path(f"metrics/train/{run.name}_log.json"), log)
        write_metrics(Path(f"metrics/train/{run.name}.json"), figures)
        note("throughput", fitted.throughput)
        remove_progress(progress)
    processes.destroy_process_group()


def _examples(
    settings: Train, prompter: Prompter, share: float, mix_seed: int, base: Path
) -> tuple[stored.Sets, dict[str, Any]]:
    """The examples to learn from and the held-out ones, and what the metrics say about them."""
    schema = records.SOFT_TREES if settings.soft_labels else records.TREES
    learn_trees, test_trees = (io.read_parquet(path, schema) for path in (TRAIN, TEST))
    learn_trees = mixes.select(learn_trees, share, mix_seed)  # the held-out trees are the same for every mix
    limit = positions(base)
    too_long: dict[str, int] = {}
    learn = read_examples(
        learn_trees,
        prompter,
        settings.token_budget,
        settings.weighting,
        settings.records_per_tree,
        settings.soft_labels,
        limit,
        too_long,
    )
    test = read_examples(test_trees, prompter, settings.token_budget, positions=limit, too_long=too_long)
    sources = {
        str(source): mixes.records_of(part) for (source,), part in learn_trees.group_by("source", maintain_order=True)
    }
    about = {"sources": sources, "too_long_records": len(too_long), "too_long": dict(list(too_long.items())[:_NAMED])}
    about["left_out"] = too_long
    if too_long:
        longest = max(too_long, key=lambda name: too_long[name])
        print(
            f"{len(too_long)} records are longer than the model's {limit} positions and left out; the longest is "
            f"{longest} with {too_long[longest]} tokens, metrics/train names the first {_NAMED}",
            file=sys.stderr,
        )
    return {"learn": learn, "test": test}, about


def _base_model() -> HubModel | dict[str, str]:
    """The repository of the base model, or the sha256 of its files by name."""
    pointer = read_hub_model(BASE)
    return pointer or {path.name: io.sha256_file(path) for path in sorted(BASE.iterdir()) if path.is_file()}


def _identity(learnt: Learnt, settings: Train) -> str:
    """Digest of everything that determines the weights: data, base, parameters, code and library versions.

    The processes and the checkpoints do not: a run may continue with another number of processes.
    """
    return io.digest_of(
        {
            "run": learnt.run.name,
            "settings": deciding(settings),
            "data": [learnt.data, learnt.share, learnt.mix_seed],
            "base": asdict(learnt.base) if isinstance(learnt.base, HubModel) else learnt.base,
            "code": code_digest("train"),
            "versions": [torch.__version__, transformers.__version__],
        }
    )


if __name__ == "__main__":
    main()
