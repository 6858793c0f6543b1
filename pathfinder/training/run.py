"""One training run, from labelled trees to a model folder, for the stage ``train`` and for ``pathfinder train``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch

from ground import io
from pathfinder.core.hub import HubModel
from pathfinder.core.params import Train
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.steps import Known
from pathfinder.models import folders, launch, model
from pathfinder.models.architectures import shape_of
from pathfinder.models.tokens import open_tokenizer as open_any_tokenizer
from pathfinder.training import metrics, outcome, stored, trainer
from pathfinder.training.card import LARGEST_TOY, Given, Learnt
from pathfinder.training.examples import Example, read_examples
from pathfinder.training.network import gathered_network, load_classifier, load_network, open_tokenizer, positions
from pathfinder.training.objective import evaluate
from pathfinder.tree.passes import Prompter, Prompts
from pathfinder.tree.separated import Separated

Trees = tuple[pl.DataFrame, pl.DataFrame]
"""The trees to learn from and the held-out trees (``records.TREES`` or ``SOFT_TREES``)."""
_CURVE_TREES = 40
"""Held-out trees of the learning curve, evenly spaced. The figures after training cover all held-out trees."""
_NAMED = 100
"""Records that the metrics name if they are left out."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The whole network after training, with its examples and figures."""

    network: Any
    tokenizer: Any
    prompter: Prompts
    tokens_added: Sequence[str]
    learn: Sequence[Example]
    held_out: Sequence[Example]
    figures: metrics.Train
    left_out: dict[str, int]
    """The tokens of each record that is longer than the model's positions."""
    rows: list[dict[str, float]]
    throughput: dict[str, float]
    known: Known | None

    def save(self, settings: Train, path: Path, learnt: Learnt | Given) -> None:
        """Write the model folder ``path``."""
        parts = self.network, self.tokenizer, self.prompter, settings, self.tokens_added
        outcome.save_model(*parts, path, learnt, self.figures.sources, self.known)


def train(
    base: folders.OpenedModel,
    variant: str,
    settings: Train,
    progress: Path,
    trees: Callable[[], Trees],
    listed: str,
    separator: str | None = None,
) -> Trained | None:
    """Train ``variant`` from ``base``, in this process and all that a launcher started; the first gets the result.

    The folder ``progress`` receives the tokenised ``trees`` and the checkpoints, so a run that was killed resumes if
    it is given the same folder. ``listed`` names the place that lists the records too long for the model.
    With a ``separator`` the network classifies the token after each step (``Separated``), in one process.
    Raises ``DataError`` as ``load_network``, ``read_examples`` and ``fit`` do.
    """
    if model.device() == "cpu":
        torch.set_num_threads(1)  # a fixed order of sums gives the same bytes for any number of cores
    launch.join(cpu=model.device() == "cpu")
    is_first, files = launch.is_first(), base.files
    tokenizer = open_tokenizer(base, settings) if separator is None else open_any_tokenizer(files)
    prompter: Prompts = Prompter(tokenizer, VARIANTS[variant]) if separator is None else Separated(tokenizer, separator)
    sets, about = stored.prepared(
        progress / "examples", is_first, lambda: _examples(trees(), settings, prompter, positions(base), listed)
    )
    learn, test, left_out = sets["learn"], sets["test"], about.pop("left_out")
    is_small = shape_of(base.config.content, str(base.folder)).parameters < LARGEST_TOY
    words = about.pop("known")
    known = Known.of_json(words) if is_small else None  # the words of a large base are unknown
    if separator is None:
        network, added = load_network(files, tokenizer, settings)
    else:
        network, added = load_classifier(files, settings, separator), []
    curve = test[:: -(-len(test) // _CURVE_TREES) or 1]
    fitted = trainer.fit(network, prompter, learn, settings, progress, curve)

    if is_first or fitted.gather_weights is not None:  # every process holds a part of the sharded weights
        held_out = evaluate(fitted.network, test, prompter, settings.token_budget)
    if fitted.gather_weights is not None:
        weights = fitted.gather_weights()
        if is_first:
            network = gathered_network(files, tokenizer, settings, weights)
    launch.leave()
    if not is_first:
        return None
    figures = outcome.figures(learn, test, fitted.rows, test_labels=held_out, **about)
    shown = fitted.rows, fitted.throughput, known
    return Trained(network, tokenizer, prompter, added, learn, test, figures, left_out, *shown)


def _examples(
    trees: Trees, settings: Train, prompter: Prompts, limit: int, listed: str
) -> tuple[stored.Sets, dict[str, Any]]:
    """The examples to learn from, the held-out examples, and their figures for the metrics."""
    learn_trees, test_trees = trees
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
    ids = learn_trees.select("source", id=pl.col("branches").list.eval(pl.element().struct.field("id"))).explode("id")
    learnt = ids.filter(~pl.col("id").is_in(list(too_long))).group_by("source", maintain_order=True).len()
    known = Known.of(_texts(learn_trees))
    about = {
        "sources": dict(learnt.iter_rows()),
        "too_long_records": len(too_long),
        "too_long": dict(list(too_long.items())[:_NAMED]),
        "left_out": too_long,
        "known": known and known.as_json(),
    }
    if too_long:
        longest = max(too_long, key=lambda name: too_long[name])
        print(
            f"{len(too_long)} records are longer than the model's {limit} positions and left out; the longest is "
            f"{longest} with {too_long[longest]} tokens, {listed} names the first {_NAMED}",
            file=sys.stderr,
        )
    if too_long and not learn:
        raise io.DataError(f"no record fits into the model's {limit} positions; choose a base that reads longer texts")
    return {"learn": learn, "test": test}, about


def _texts(trees: pl.DataFrame) -> Iterator[str]:
    """The problems and steps of trees, one tree in memory at a time."""
    for problem, steps, branches in trees.select("problem", "steps", "branches").iter_rows():
        yield "\n".join([problem, *steps, *(branch["step"] for branch in branches)])


def base_of(base: folders.OpenedModel) -> HubModel | dict[str, str]:
    """The repository of a base model, or the sha256 of its files by name."""
    files = (path for path in sorted(base.files.iterdir()) if path.is_file())
    return base.origin or {path.name: io.sha256_file(path) for path in files}
