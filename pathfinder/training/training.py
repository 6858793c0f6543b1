"""Training on trees: every labelled step and alternative of a problem in one sequence.

Loss and gradients equal the sum over the separate published samples (two a record: first labels masked; correctness
given the gold first labels). The loss is cross-entropy over the whole vocabulary one token before a label's place,
summed and divided by the label weights of the whole optimiser step (a mean per forward pass would overweight some).

A soft label is the share of roll-outs from a step that ended well (Monte-Carlo value): the target of its correctness
is then that share of ``<+>`` and the rest of ``<->``; a share of 0 or 1 is the hard label's loss to the bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from pathfinder.core.io import DataError
from pathfinder.core.prompts import Label
from pathfinder.models.tokens import LabelIds
from pathfinder.tree.attention import read_logits
from pathfinder.tree.layout import batch_trees, pack
from pathfinder.tree.passes import Prompter, Query
from pathfinder.tree.tree import Tree


@dataclass(frozen=True, slots=True)
class Example:
    """One tree of training samples. ``marks`` (which label) to ``weights`` run along ``tree.reads``."""

    name: str
    tree: Tree
    marks: npt.NDArray[np.int8]
    positive: npt.NDArray[np.bool_]
    shares: npt.NDArray[np.float32]
    """How much of the target is ``<+>``: 0 or 1, or a Monte-Carlo value."""
    weights: npt.NDArray[np.float32]
    records: int
    samples: int
    """How many samples the published training would make of it."""
    sample_tokens: int
    """How many tokens these samples would have."""


def gold_labels(branch: dict[str, Any], labels: Sequence[Label]) -> tuple[bool, ...]:
    """A branch's true labels in the order of ``labels``; "error-free" means sound in mathematics and consistency."""
    truth = {name: branch[name] for name in ("math", "consistency", "correctness")}
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
    """The trees of a ``records.TREES`` frame, in its order.

    ``records_per_tree`` (0 is no bound) cuts larger trees into even parts of neighbouring records, which makes the
    optimiser's steps more diverse and costs tokens. A tree over ``budget`` tokens is split between its records too; one
    record over it raises ``DataError`` by name, as does a tree without any labelled step. ``weighting`` "problem" gives
    every problem the same total weight. ``soft`` takes the targets of correctness from ``records.SOFT_TREES``.
    """
    examples: list[Example] = []
    owners: list[str] = []
    for row in frame.iter_rows(named=True):
        if not row["branches"]:
            raise DataError(f"tree {row['tree_id']}: no labelled step, nothing to learn from; re-run the build stage")
        for part in _parts(row["branches"], records_per_tree):
            made = list(_examples(row, part, prompter, budget, soft))
            examples += made
            owners += [row["problem_id"]] * len(made)
    if weighting == "sample":
        return examples
    labels: Counter[str] = Counter()
    for owner, example in zip(owners, examples, strict=True):
        labels[owner] += len(example.marks)
    for owner, example in zip(owners, examples, strict=True):
        example.weights[:] = 1 / labels[owner]
    return examples


def _parts(branches: list[dict[str, Any]], most: int) -> Iterator[list[dict[str, Any]]]:
    count = -(-len(branches) // most) if most else 1
    for part in range(count):
        yield branches[part * len(branches) // count : (part + 1) * len(branches) // count]


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
    per_record = 1 if prompter.variant.sequential else len(prompter.passes)
    positive = np.asarray([gold[reading.query][reading.mark] for reading in readings], dtype=np.bool_)
    shares = positive.astype(np.float32)
    if soft:
        for at, reading in enumerate(readings):
            if prompter.labels[reading.mark] == "correctness":
                shares[at] = _soft_share(branches[reading.query], shares[at])
    yield Example(
        name=row["tree_id"],
        tree=tree,
        marks=np.asarray([reading.mark for reading in readings], dtype=np.int8),
        positive=positive,
        shares=shares,
        weights=np.ones(len(readings), dtype=np.float32),
        records=len(branches),
        samples=per_record * len(branches),
        sample_tokens=sum(int(tree.depth[tree.reads[i]]) + 2 for i in _last_reads(readings)),
    )


def _soft_share(branch: dict[str, Any], hard: float) -> float:
    value = branch["mc_value"]
    if value is None:
        return hard
    if not 0 <= value <= 1:
        raise DataError(f"record {branch['id']}: mc_value {value}, expected a share from 0 to 1; correct its source")
    return float(value)


def _last_reads(readings: Sequence[Any]) -> list[int]:
    """The last reading of every sample: where the sample ends but for its label token."""
    following = [*readings[1:], None]
    return [
        i
        for i, (this, after) in enumerate(zip(readings, following, strict=True))
        if after is None or (this.query, this.given) != (after.query, after.given)
    ]


def plan_steps(samples: Sequence[int], batch_samples: int, epochs: float, seed: int) -> list[list[int]]:
    """Which examples each optimiser step takes: seeded shuffles, filled up to ``batch_samples`` published samples.

    A fractional last epoch is cut after that share of its steps. The same arguments give the same plan everywhere.
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


def share_out(sizes: Sequence[int], ranks: int) -> list[list[int]]:
    """Items to ``ranks`` processes, the largest first to the least loaded; the same everywhere for the same sizes."""
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for item in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        least = loads.index(min(loads))
        shares[least].append(item)
        loads[least] += sizes[item]
    return [sorted(share) for share in shares]


@dataclass(frozen=True, slots=True)
class Targets:
    """What a batch's readings should say: marks, truth, share of ``<+>`` and weight, each (readings,)."""

    marks: npt.NDArray[np.int8]
    positive: npt.NDArray[np.bool_]
    shares: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]


def batches(examples: Sequence[Example], token_budget: int) -> Iterator[tuple[Any, Targets]]:
    """Forward passes over ``examples`` within the budget: ``(TreeBatch, Targets)``."""
    for group in pack([len(example.tree) for example in examples], token_budget):
        yield batch_of([examples[i] for i in group])


def batch_of(chosen: Sequence[Example]) -> tuple[Any, Targets]:
    """One forward pass over all of ``chosen``."""
    return (
        batch_trees([example.tree for example in chosen]),
        Targets(
            np.concatenate([example.marks for example in chosen]),
            np.concatenate([example.positive for example in chosen]),
            np.concatenate([example.shares for example in chosen]),
            np.concatenate([example.weights for example in chosen]),
        ),
    )


def summed_loss(
    model: torch.nn.Module, batch: Any, targets: Targets, ids: LabelIds
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted sum of the readings' cross-entropies, and which readings rank the true label token higher.

    The caller divides by the weights of the whole optimiser step. ``batch`` is on the model's device.
    """
    logits = read_logits(model, batch)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    device = logits.device
    positive = torch.from_numpy(targets.positive).to(device)
    weights = torch.from_numpy(targets.weights).to(device, logits.dtype)
    if bool(np.isin(targets.shares, (0, 1)).all()):
        wanted = torch.from_numpy(targets.shares > 0).to(device)
        losses = cross_entropy(logits, torch.where(wanted, ids.good, ids.bad), reduction="none")
    else:
        share = torch.from_numpy(targets.shares).to(device, logits.dtype)
        total = torch.logsumexp(logits, dim=-1)
        losses = total - share * logits[:, ids.good] - (1 - share) * logits[:, ids.bad]
    with torch.no_grad():
        right = (logits[:, ids.good] >= logits[:, ids.bad]) == positive
    return (losses * weights).sum(), right


@torch.no_grad()  # not inference_mode: a sharded network goes on training with what it gathers here
def evaluate(
    model: PreTrainedModel, examples: Sequence[Example], prompter: Prompter, token_budget: int
) -> dict[str, dict[str, float]]:
    """Accuracy, area under the ROC curve, loss and the majority's accuracy per label, read where the loss is read.

    The loss is that of choosing between <+> and <->, in nats a label. Correctness is read given the gold first labels,
    as in training.
    """
    model.train(False)
    margins: list[npt.NDArray[np.float64]] = []
    targets: list[Targets] = []
    for batch, wanted in batches(examples, token_budget):
        logits = read_logits(model, batch.to(model.device, model.dtype))
        margins.append((logits[:, prompter.ids.good] - logits[:, prompter.ids.bad]).double().cpu().numpy())
        targets.append(wanted)
    if not targets:
        return {}
    margin = np.concatenate(margins)
    marks = np.concatenate([t.marks for t in targets])
    positive = np.concatenate([t.positive for t in targets])
    out: dict[str, dict[str, float]] = {}
    for mark, label in enumerate(prompter.labels):
        here, truth = margin[marks == mark], positive[marks == mark]
        share = float(truth.mean())
        out[label] = {
            "n": len(truth),
            "positive_share": share,
            "accuracy": float(((here >= 0) == truth).mean()),
            "majority_accuracy": max(share, 1 - share),
            "auc": area_under_curve(here, truth),
            "loss": float(np.logaddexp(0.0, np.where(truth, -here, here)).mean()),
        }
    return out


def area_under_curve(scores: npt.NDArray[np.float64], positive: npt.NDArray[np.bool_]) -> float:
    """P(a positive outranks a negative), ties half; 0.5 where one kind is missing."""
    yes = int(positive.sum())
    no = len(positive) - yes
    if not yes or not no:
        return 0.5
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[positive].sum() - yes * (yes + 1) / 2) / (yes * no))
