"""One cell of the experiment: train a variant on a number of records, choose its thresholds, and measure it."""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
import transformers

from extras.experiment.bases import BASES
from extras.experiment.figures import (
    Judged,
    best_f1,
    by_reading_of,
    prmbench_of,
    read_judged,
    threshold_of,
    with_idle_errors,
)
from extras.experiment.material import MATERIAL
from extras.experiment.noise import Flags, Flips, Floats, corrected, estimated, flipped
from extras.experiment.plan import Cell, Plan
from ground.io import digest_of, read_json, read_parquet, sha256_file, write_json
from pathfinder.benchmarks.readers import PRMBenchItem, read_prmbench
from pathfinder.core.labels import HUMAN
from pathfinder.core.mixes import take
from pathfinder.core.params import Train
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.readings import readings_of
from pathfinder.core.records import TREES
from pathfinder.core.runs import parse_run
from pathfinder.core.steps import Solution
from pathfinder.models import tokens
from pathfinder.models.folders import open_model
from pathfinder.prm.scoring import Scorer
from pathfinder.training import outcome, trainer
from pathfinder.training.card import Learnt
from pathfinder.training.examples import Example, read_examples
from pathfinder.training.network import load_network
from pathfinder.training.objective import margins
from pathfinder.tree.passes import Prompter

_TOKENS = 8192
"""Token budget of a forward pass of the evaluation."""
_GUESSES = 8
"""Seeds whose mean prediction estimates the rates of wrong labels."""


@cache
def _prompter(base: Path, variant: str) -> Prompter:
    return Prompter(tokens.load_tokenizer(base), VARIANTS[variant])


@dataclass(frozen=True)
class Laboratory:
    """The test sets, and the examples of the last variant and size, which the cells of a process share."""

    plan: Plan
    material: Path = MATERIAL
    bases: Path = BASES

    @cached_property
    def dev(self) -> list[Judged]:
        """The set that chooses thresholds."""
        return read_judged(self.material / "dev")

    @cached_property
    def test(self) -> list[Judged]:
        """The ProcessBench-like set."""
        return read_judged(self.material / "processbench")

    @cached_property
    def prmbench(self) -> list[PRMBenchItem]:
        """The PRMBench-like set."""
        return read_prmbench(self.material / "prmbench").items

    @cached_property
    def _examples(self) -> dict[tuple[Any, ...], list[Example]]:
        return {}

    def examples(self, block: str, cell: Cell) -> list[Example]:
        """The records to learn from: the first of one seeded order of trees, so that sizes are nested."""
        key = (*self.plan.block(block).flips, cell.base, cell.variant, cell.size)
        if key not in self._examples:
            self._examples.clear()
            trees, _ = self.records(block, cell)
            self._examples[key] = read_examples(trees, self.prompter(cell), self.plan.train.token_budget)
        return self._examples[key]

    def records(self, block: str, cell: Cell) -> tuple[pl.DataFrame, Flips]:
        """The records to learn from, and the shares of their labels that are flipped."""
        trees = take(read_parquet(self.material / "train.parquet", TREES), cell.size, self.plan.seed)
        return flipped(trees, Flips(*self.plan.block(block).flips), self.plan.seed)

    def identity(self, block: str, cell: Cell) -> str:
        """Digest of everything that decides a cell's figures, without the code."""
        noise = self.plan.block(block)
        labels = [*noise.flips, noise.correction] if any(noise.flips) else []
        return digest_of([cell.name, *self._inputs(block, cell), *labels])

    def noise(self, block: str, cell: Cell) -> dict[str, Flips]:
        """The shares of a block's wrong labels, ``true`` and ``estimated``; empty without wrong labels.

        The estimate takes 16 trainings, so its result is stored in a folder next to the material.
        """
        if not any(self.plan.block(block).flips):
            return {}
        inputs = [cell.variant, cell.size, *self._inputs(block, cell), *self.plan.block(block).flips]
        path = self.material.parent / "noise" / f"{digest_of(inputs)}.json"
        if not path.exists():
            write_json(path, estimated(*self.observed(block, cell)))
        return {"true": self.records(block, cell)[1], "estimated": Flips(*read_json(path))}

    def observed(self, block: str, cell: Cell) -> tuple[Flags, Floats]:
        """The label of each reading of all examples, and the probability of ``<+>`` there by models of the other half.

        Bool and float64 (readings,); a probability is the mean over seeds.
        """
        examples, first = self.examples(block, cell), self.plan.block(block).seeds[0]
        labels, chances = list[Flags](), list[Floats]()
        for known, asked in ((examples[::2], examples[1::2]), (examples[1::2], examples[::2])):
            found = [
                self._margins(block, replace(cell, seed=seed), known, asked) for seed in range(first, first + _GUESSES)
            ]
            labels.append(found[0][1])
            chances.append(np.mean([1 / (1 + np.exp(-margin)) for margin, _ in found], axis=0))
        return np.concatenate(labels), np.concatenate(chances)

    def _margins(
        self, block: str, cell: Cell, known: Sequence[Example], asked: Sequence[Example]
    ) -> tuple[Floats, Flags]:
        """The margin of ``<+>`` at each reading of ``asked`` by a model that learnt from ``known``, and the labels."""
        with tempfile.TemporaryDirectory() as folder:
            network = self._fitted(block, cell, known, Path(folder))[0].network
        found, targets = margins(network, asked, self.prompter(cell), _TOKENS)
        return found, targets.positive

    def _inputs(self, block: str, cell: Cell) -> list[Any]:
        settings = self.settings(block, replace(cell, seed=1)).model_dump(
            exclude={"save_every", "checkpoint_gib", "launch"}
        )
        base = sha256_file(self.bases / cell.base / "model.safetensors")
        return [settings, self.plan.seed, base, self._material]

    @cached_property
    def _material(self) -> list[str]:
        return [sha256_file(path) for path in sorted(self.material.rglob("*.*"))]

    def measure(self, block: str, cell: Cell) -> dict[str, Any]:
        """Train the cell's model and measure it; the figures, with the machine that made them."""
        noise = self.noise(block, cell)
        started = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            trained = self.train(block, cell, Path(folder), noise.get(self.plan.block(block).correction))
            after_training = time.process_time()
            scorer = Scorer(open_model(trained), dtype="float32", token_budget=_TOKENS, where="cpu")
            dev, test, steps = (scorer.score(solutions) for solutions in self.solutions)
        evaluated = time.process_time() - after_training
        readings: list[str] = [name for name in ("soundness", "quality") if name in readings_of(VARIANTS[cell.variant])]
        thresholds = {name: threshold_of(self.dev, dev, name) for name in readings}
        asked = dict(thresholds)  # PRMBench flags steps that are not optimal, ProcessBench does not
        if "quality" in asked:
            asked["quality"] = threshold_of(with_idle_errors(self.dev), dev, "quality")
        return {
            "cell": {"base": cell.base, "variant": cell.variant, "size": cell.size, "seed": cell.seed},
            "identity": self.identity(block, cell),
            "dev": {name: best_f1(self.dev, dev, name) for name in readings},
            "processbench": {name: by_reading_of(self.test, test, name, at) for name, at in thresholds.items()},
            "prmbench": prmbench_of(self.prmbench, steps, asked),
            "prmbench_thresholds": asked,
            "seconds": {"train": round(after_training - started, 1), "evaluate": round(evaluated, 1)},
            **({"noise": noise} if noise else {}),
            "machine": {
                "processor": torch.backends.cpu.get_cpu_capability(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "python": platform.python_version(),
            },
        }

    @cached_property
    def solutions(self) -> tuple[list[Solution], list[Solution], list[Solution]]:
        """The solutions to score: of ``dev``, ``test`` and ``prmbench``."""
        return (
            [judged.solution for judged in self.dev],
            [judged.solution for judged in self.test],
            [Solution(item.idx, item.problem, item.steps) for item in self.prmbench],
        )

    def prompter(self, cell: Cell) -> Prompter:
        """The prompter of a cell's variant."""
        return _prompter(self.bases / cell.base, cell.variant)

    def settings(self, block: str, cell: Cell) -> Train:
        """The settings of a cell's training."""
        train = self.plan.train
        rate = self.plan.block(block).rates.get(cell.variant, train.learning_rate)
        return train.model_copy(update={"seed": train.seed + cell.seed - 1, "learning_rate": rate})

    def train(self, block: str, cell: Cell, folder: Path, flips: Flips | None = None) -> Path:
        """Train the model of a cell and save it in ``folder``; the path of the model.

        With ``flips`` the loss expects labels that are wrong at these rates.
        """
        base, settings, examples = self.bases / cell.base, self.settings(block, cell), self.examples(block, cell)
        fitted, added = self._fitted(block, cell, examples, folder / "progress", flips)
        learnt = Learnt(parse_run(cell.variant), {"model": sha256_file(base / "model.safetensors")}, "", 1.0, 0)
        sources = {HUMAN: sum(example.records for example in examples)}
        tokenizer, prompter = tokens.load_tokenizer(base), self.prompter(cell)
        outcome.save_model(fitted.network, tokenizer, prompter, settings, added, folder / "model", learnt, sources)
        return folder / "model"

    def _fitted(
        self, block: str, cell: Cell, examples: Sequence[Example], folder: Path, flips: Flips | None = None
    ) -> tuple[trainer.Fitted, Any]:
        """The result of a cell's training on ``examples``, and what ``load_network`` added to the base model."""
        torch.set_num_threads(1)  # a fixed order of sums
        base, settings, prompter = self.bases / cell.base, self.settings(block, cell), self.prompter(cell)
        network, added = load_network(base, tokens.load_tokenizer(base), settings)
        if flips:
            head = network.get_output_embeddings()
            head.register_forward_hook(lambda _head, _states, logits: corrected(logits, prompter.ids, flips))
        return trainer.fit(network, prompter, examples, settings, folder), added
