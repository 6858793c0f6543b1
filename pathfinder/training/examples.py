"""Training examples: all labelled steps and alternatives of a trajectory as one tree, and their split over steps.

A soft label is the share of roll-outs from a step that ended well (its Monte-Carlo value). The target of Correctness
then has this share of ``<+>``, and the rest is ``<->``. A share of 0 or 1 gives exactly the loss of the hard label.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ground.io import DataError
from ground.progress import Progress
from pathfinder.core.labels import CORRECTNESS, OPTIMALITY, PREDICTED, STEP_LABELS
from pathfinder.core.params import Train
from pathfinder.core.prompts import ERROR_FREE
from pathfinder.tree.packing import split
from pathfinder.tree.passes import Encoded, Pass, Prompts, Query
from pathfinder.tree.tree import Tree


@dataclass(frozen=True, slots=True)
class Targets:
    """The labels that readings should predict, each array (readings,)."""

    marks: npt.NDArray[np.int8]
    """The position of the label in ``Prompts.labels``."""
    positive: npt.NDArray[np.bool_]
    shares: npt.NDArray[np.float32]
    """The share of ``<+>`` in the target: 0, 1 or a Monte-Carlo value."""
    weights: npt.NDArray[np.float32]

    @classmethod
    def join(cls, parts: Sequence[Targets]) -> Targets:
        """Concatenate the targets of several examples."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True, slots=True)
class Example:
    """One tree of training samples with the targets of its readings."""

    name: str
    tree: Tree
    targets: Targets
    ids: tuple[str, ...]
    """The ids of its records."""
    samples: int
    """The number of samples that the published training makes from it."""
    sample_tokens: int
    """The number of tokens in these samples."""

    @property
    def records(self) -> int:
        """The number of its records."""
        return len(self.ids)


_Labelled = tuple[dict[str, Any], Encoded, tuple[bool, ...]]
"""A record, its prompt and its true labels."""


def gold_labels(branch: dict[str, Any], labels: Sequence[str]) -> tuple[bool, ...]:
    """A branch's true values of ``labels``; "error_free" means that no type has an error.

    The judge names one error of a wrong step, so "optimality" is 0 only for a step that is error-free but not correct.
    Raises ``DataError`` if a label is neither 0 nor 1.
    """
    truth = {name: branch[name] for name in STEP_LABELS}
    wrong = {name: value for name, value in truth.items() if value not in (0, 1)}
    if wrong:
        raise DataError(f"record {branch['id']}: labels {wrong}, expected 0 or 1; re-run the filter and build stages")
    truth[ERROR_FREE] = min(truth[kind.name] for kind in PREDICTED)
    truth[OPTIMALITY] = 1 - (truth[ERROR_FREE] - truth[CORRECTNESS])
    return tuple(truth[label] == 1 for label in labels)


def read_examples(
    frame: pl.DataFrame,
    prompter: Prompts,
    budget: int,
    weighting: str = "sample",
    records_per_tree: int = 0,
    soft: bool = False,
    positions: int = 0,
    too_long: dict[str, int] | None = None,
) -> list[Example]:
    """The examples of a ``records.TREES`` frame, in its order.

    ``records_per_tree`` (0: no limit) cuts larger trees into even parts of neighbouring records, which makes the steps
    more diverse and costs tokens. A tree over ``budget`` tokens is also split between its records; a single record over
    the budget is a separate example. A record of more than ``positions`` tokens (0: no limit) is left out, and
    ``too_long`` receives its id and its number of tokens. ``weighting`` "problem" gives every problem the same total
    weight; "device" makes each published sample a separate example (``published.plan_samples``). ``soft`` takes the
    targets of Correctness from the column ``mc_value`` of ``records.SOFT_TREES``.

    Raises ``DataError`` for a tree without a labelled step or a wrong label.
    """
    reader = _Reader(prompter, budget, soft, positions, {} if too_long is None else too_long)
    examples: list[Example] = []
    problems: list[str] = []
    with Progress("tokenise", int(frame["branches"].list.len().sum()), "records") as progress:
        for row in frame.iter_rows(named=True):
            branches = row["branches"]
            if not branches:
                raise DataError(
                    f"tree {row['tree_id']}: no labelled step, nothing to learn from; re-run the build stage"
                )
            parts = -(-len(branches) // records_per_tree) if records_per_tree else 1
            for part in range(parts):
                chosen = branches[part * len(branches) // parts : (part + 1) * len(branches) // parts]
                examples += reader.read(row, chosen, weighting == "device")
            problems += [row["problem_id"]] * (len(examples) - len(problems))
            progress.advance(len(branches))
    if weighting == "problem":
        labels: Counter[str] = Counter()
        for problem, example in zip(problems, examples, strict=True):
            labels[problem] += len(example.targets.marks)
        for problem, example in zip(problems, examples, strict=True):
            example.targets.weights[:] = 1 / labels[problem]
    return examples


@dataclass(frozen=True, slots=True)
class _Reader:
    """Makes examples of labelled steps that share a problem."""

    prompter: Prompts
    budget: int
    soft: bool
    positions: int
    too_long: dict[str, int]

    def read(self, row: dict[str, Any], branches: Sequence[dict[str, Any]], apart: bool) -> Iterator[Example]:
        """The examples of some ``branches`` of a row, in their order; ``apart`` has one for each sample."""
        steps = tuple(row["steps"])
        queries = [Query(f"record {b['id']}", row["problem"], steps[: b["step_index"]], b["step"]) for b in branches]
        fitting: list[_Labelled] = []
        for branch, encoded in zip(branches, self.prompter.encode(queries), strict=True):
            length = encoded[1][-1]  # the tokens before the last label
            if self.positions and length > self.positions:
                self.too_long[branch["id"]] = length
            else:
                fitting.append((branch, encoded, gold_labels(branch, self.prompter.labels)))
        samples = self.prompter.samples
        if apart:
            for record, sample in itertools.product(fitting, samples):
                yield from self._split(row["tree_id"], [record], [sample])
        elif fitting:
            yield from self._split(row["tree_id"], fitting, samples)

    def _split(self, name: str, records: Sequence[_Labelled], samples: Sequence[Sequence[Pass]]) -> Iterator[Example]:
        """One example with these samples of each record, or several if the tree of all records is over the budget."""
        gold = [labels for _, _, labels in records]
        passes = [step for sample in samples for step in sample]
        tree, readings = self.prompter.tree_of([encoded for _, encoded, _ in records], passes, gold)
        if len(tree) > self.budget and len(records) > 1:
            half = len(records) // 2
            yield from self._split(name, records[:half], samples)
            yield from self._split(name, records[half:], samples)
            return
        positive = np.asarray([gold[reading.query][reading.mark] for reading in readings], dtype=np.bool_)
        shares = positive.astype(np.float32)
        if self.soft:
            for at, reading in enumerate(readings):
                if self.prompter.labels[reading.mark] == CORRECTNESS:
                    shares[at] = _soft_share(records[reading.query][0], shares[at])
        by_sample = itertools.groupby(range(len(readings)), key=lambda i: (readings[i].query, readings[i].given))
        ends = [list(sample)[-1] for _, sample in by_sample]
        yield Example(
            name=name,
            tree=tree,
            targets=Targets(
                marks=np.asarray([reading.mark for reading in readings], dtype=np.int8),
                positive=positive,
                shares=shares,
                weights=np.ones(len(readings), dtype=np.float32),
            ),
            ids=tuple(branch["id"] for branch, _, _ in records),
            samples=len(records) * len(samples),
            sample_tokens=sum(int(tree.depth[tree.reads[i]]) + 2 for i in ends),
        )


def _soft_share(branch: dict[str, Any], hard: float) -> float:
    value = branch["mc_value"]
    if value is None:
        return hard
    if not 0 <= value <= 1:
        raise DataError(f"record {branch['id']}: mc_value {value}, expected a share from 0 to 1; correct its source")
    return float(value)


def plan_trees(examples: Sequence[Example], settings: Train) -> list[list[int]]:
    """The examples of each optimiser step; a step has the same number of records in every variant.

    A record counts as two samples, as in the published training of ``full``.
    """
    samples = [2 * example.records for example in examples]
    return plan_steps(samples, settings.batch_samples, settings.epochs, settings.seed, settings.steps)


def plan_steps(
    samples: Sequence[int], batch_samples: int, epochs: float, seed: int, exactly: int = 0
) -> list[list[int]]:
    """The examples of each optimiser step: seeded shuffles, filled up to ``batch_samples`` samples.

    ``samples`` is the number of samples per example. A fractional last epoch ends after that share of its steps.
    ``exactly`` sets the number of steps; the plan then takes as many epochs as these need.
    """
    steps: list[list[int]] = []
    for epoch in itertools.count():
        if len(steps) >= exactly if exactly else epoch >= epochs:
            break
        order = np.random.default_rng([seed, epoch]).permutation(len(samples)).tolist()
        made: list[list[int]] = split({item: samples[item] for item in order}, batch_samples) or [[]]
        share = 1.0 if exactly else min(1.0, epochs - epoch)
        steps += made[: max(1, round(share * len(made)))]
    return steps[:exactly] if exactly else steps
