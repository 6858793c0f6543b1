"""Training examples: all labelled steps and alternatives of a problem in one tree, and their distribution over steps.

A soft label is the share of roll-outs from a step that ended well (its Monte-Carlo value). The target of Correctness is
then that share of ``<+>`` and the rest of ``<->``. A share of 0 or 1 gives exactly the loss of the hard label.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pathfinder.core.io import DataError
from pathfinder.core.prompts import Label
from pathfinder.core.records import STEP_LABELS
from pathfinder.tree.passes import Prompter, Query
from pathfinder.tree.tree import Tree


@dataclass(frozen=True, slots=True)
class Targets:
    """The labels that readings should predict, each array (readings,)."""

    marks: npt.NDArray[np.int8]
    """The position of the label in ``Prompter.labels``."""
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
    records: int
    samples: int
    """The number of samples that the published training makes of it."""
    sample_tokens: int
    """The number of tokens in these samples."""


def gold_labels(branch: dict[str, Any], labels: Sequence[Label]) -> tuple[bool, ...]:
    """A branch's true values of ``labels``; "error_free" means that math and consistency are correct.

    Raises ``DataError`` if a label is neither 0 nor 1.
    """
    truth = {name: branch[name] for name in STEP_LABELS}
    wrong = {name: value for name, value in truth.items() if value not in (0, 1)}
    if wrong:
        raise DataError(f"record {branch['id']}: labels {wrong}, expected 0 or 1; re-run the filter and build stages")
    truth["error_free"] = int(truth["math"] == 1 and truth["consistency"] == 1)
    return tuple(truth[label] == 1 for label in labels)


def read_examples(
    frame: pl.DataFrame,
    prompter: Prompter,
    budget: int,
    weighting: str = "sample",
    records_per_tree: int = 0,
    soft: bool = False,
) -> list[Example]:
    """The examples of a ``records.TREES`` frame, in its order.

    ``records_per_tree`` (0: no limit) cuts larger trees into even parts of neighbouring records, which makes the steps
    more diverse and costs tokens. A tree over ``budget`` tokens is also split between its records. ``weighting``
    "problem" gives every problem the same total weight. ``soft`` takes the targets of Correctness from the column
    ``mc_value`` of ``records.SOFT_TREES``.

    Raises ``DataError`` for a tree without a labelled step, a single record over the budget, or a wrong label.
    """
    examples: list[Example] = []
    problems: list[str] = []
    for row in frame.iter_rows(named=True):
        branches = row["branches"]
        if not branches:
            raise DataError(f"tree {row['tree_id']}: no labelled step, nothing to learn from; re-run the build stage")
        parts = -(-len(branches) // records_per_tree) if records_per_tree else 1
        for part in range(parts):
            chosen = branches[part * len(branches) // parts : (part + 1) * len(branches) // parts]
            examples += _examples(row, chosen, prompter, budget, soft)
        problems += [row["problem_id"]] * (len(examples) - len(problems))
    if weighting == "problem":
        labels: Counter[str] = Counter()
        for problem, example in zip(problems, examples, strict=True):
            labels[problem] += len(example.targets.marks)
        for problem, example in zip(problems, examples, strict=True):
            example.targets.weights[:] = 1 / labels[problem]
    return examples


def _examples(
    row: dict[str, Any], branches: list[dict[str, Any]], prompter: Prompter, budget: int, soft: bool
) -> Iterator[Example]:
    steps = tuple(row["steps"])
    queries = [Query(f"record {b['id']}", row["problem"], steps[: b["step_index"]], b["step"]) for b in branches]
    gold = [gold_labels(branch, prompter.labels) for branch in branches]
    tree, readings = prompter.tree(queries, gold)
    if len(tree) > budget:
        if len(branches) == 1:
            raise DataError(
                f"record {branches[0]['id']}: {len(tree)} tokens, over train.token_budget {budget}; raise the budget "
                "or leave the record out"
            )
        half = len(branches) // 2
        yield from _examples(row, branches[:half], prompter, budget, soft)
        yield from _examples(row, branches[half:], prompter, budget, soft)
        return
    positive = np.asarray([gold[reading.query][reading.mark] for reading in readings], dtype=np.bool_)
    shares = positive.astype(np.float32)
    if soft:
        for at, reading in enumerate(readings):
            if prompter.labels[reading.mark] == "correctness":
                shares[at] = _soft_share(branches[reading.query], shares[at])
    by_sample = itertools.groupby(range(len(readings)), key=lambda i: (readings[i].query, readings[i].given))
    ends = [list(sample)[-1] for _, sample in by_sample]
    yield Example(
        name=row["tree_id"],
        tree=tree,
        targets=Targets(
            marks=np.asarray([reading.mark for reading in readings], dtype=np.int8),
            positive=positive,
            shares=shares,
            weights=np.ones(len(readings), dtype=np.float32),
        ),
        records=len(branches),
        samples=len(branches) * (1 if prompter.variant.sequential else len(prompter.passes)),
        sample_tokens=sum(int(tree.depth[tree.reads[i]]) + 2 for i in ends),
    )


def _soft_share(branch: dict[str, Any], hard: float) -> float:
    value = branch["mc_value"]
    if value is None:
        return hard
    if not 0 <= value <= 1:
        raise DataError(f"record {branch['id']}: mc_value {value}, expected a share from 0 to 1; correct its source")
    return float(value)


def plan_steps(samples: Sequence[int], batch_samples: int, epochs: float, seed: int) -> list[list[int]]:
    """The examples of each optimiser step: seeded shuffles, filled up to ``batch_samples`` published samples.

    ``samples`` is the number of samples per example. A fractional last epoch ends after that share of its steps.
    """
    steps: list[list[int]] = []
    for epoch in range(math.ceil(epochs)):
        order = np.random.default_rng([seed, epoch]).permutation(len(samples)).tolist()
        made: list[list[int]] = [[]]
        filled = 0
        for item in order:
            if made[-1] and filled + samples[item] > batch_samples:
                made.append([])
                filled = 0
            made[-1].append(item)
            filled += samples[item]
        share = min(1.0, epochs - epoch)
        steps += made[: max(1, round(share * len(made)))]
    return steps


def balance(sizes: Sequence[int], processes: int) -> list[list[int]]:
    """Distribute items over processes, the largest first to the least loaded process."""
    shares: list[list[int]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for item in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        least = loads.index(min(loads))
        shares[least].append(item)
        loads[least] += sizes[item]
    return [sorted(share) for share in shares]
