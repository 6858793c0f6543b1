"""Trees give the logits of separate prompts of the same model, and errors planted in a tree are noticed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from pathfinder.core.prompts import VARIANTS
from pathfinder.tree.attention import BinPlan, read_logits, use_trees
from pathfinder.tree.layout import TreeBatch, batch_trees
from pathfinder.tree.passes import PRESETS, Prompter, Query
from tests.support.models import (
    plain_tokenizer,
    separate_logits,
    small_model,
    world_tokenizer,
)

PROBLEMS = [
    ("Tom has 5 apples.\n1) buys 7.\nHow many?", ["1) buys 7, so 5 + 7 = 12 apples.", "The answer is \\boxed{12}."]),
    ("What is $x^2$ for x = 3?", ["Let x = 3.", "\n\nThen x^2 = 9.\n", "# Answer\n\n9", "so 9"]),
    (
        "Say <+> or <extra>? <|im_end|>\n<|im_start|>assistant\n",
        ["Math reasoning: <->, Consistency: <extra>", "Current Step: <+> \ud800 {x} {{y}}", "", " \n\n "],
    ),
]


def queries_of(problem: str, steps: list[str]) -> list[Query]:
    return [Query(f"step {t}", problem, tuple(steps[:t]), step) for t, step in enumerate(steps)]


def largest_difference(
    model: Any, tokenizer: Any, prompter: Prompter, groups: list[list[Query]], backend: Any, mutate: Any = None
) -> float:
    """The largest difference between a batch of trees and the separate prompts of the same queries."""
    built = [prompter.tree(group) for group in groups]
    want = []
    for group, (_, readings) in zip(groups, built, strict=True):
        for query in range(len(group)):
            mine = [reading for reading in readings if reading.query == query]
            for given, members in itertools.groupby(mine, key=lambda reading: reading.given):
                asked = [reading.mark for reading in members]
                want.append(separate_logits(model, tokenizer, prompter, group[query], given, asked))
    model.config._attn_implementation = "sdpa"
    use_trees(model)
    batch = batch_trees([tree for tree, _ in built], backend)
    batch = mutate(batch) if mutate else batch
    got = read_logits(model, batch.to("cpu", model.dtype))
    model.config._attn_implementation = "sdpa"
    return float((got - torch.cat(want)).abs().max())


@pytest.mark.parametrize(
    ("make", "backend"),
    [(plain_tokenizer, "dense"), (plain_tokenizer, "cascade"), (world_tokenizer, "cascade"), (plain_tokenizer, "flex")],
)
@pytest.mark.parametrize("variant", list(VARIANTS))
@torch.no_grad()
def test_trees_give_the_logits_of_separate_prompts(
    make: Any, backend: Any, variant: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = make()
    prompter = Prompter(tokenizer, VARIANTS[variant])
    groups = [queries_of(*problem) for problem in PROBLEMS]
    model = small_model(tokenizer)
    assert largest_difference(model, tokenizer, prompter, groups, backend) < 1e-5
    request.getfixturevalue("exact_norms")
    double = small_model(tokenizer, torch.float64)
    assert largest_difference(double, tokenizer, prompter, groups, backend) < 1e-12


@pytest.mark.parametrize("preset", list(PRESETS))
@torch.no_grad()
def test_presets_too(preset: str) -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"], PRESETS[preset])
    groups = [queries_of(*problem) for problem in PROBLEMS]
    assert largest_difference(small_model(tokenizer), tokenizer, prompter, groups, "cascade") < 1e-5


def _masked(batch: TreeBatch, change: Callable[[torch.Tensor], torch.Tensor]) -> TreeBatch:
    """A dense batch of one tree with a changed mask."""
    assert isinstance(batch.plan, BinPlan)
    (one,) = batch.plan.bins
    assert one.mask is not None
    return replace(batch, plan=BinPlan((replace(one, mask=change(one.mask)),)))


def _causal(batch: TreeBatch) -> TreeBatch:
    return _masked(batch, lambda mask: torch.ones_like(mask).tril())


def _end_too_late(batch: TreeBatch) -> TreeBatch:
    """A node also sees everything that the node before it sees."""
    return _masked(batch, lambda mask: torch.cat([mask[:1], mask[1:] | mask[:-1]]))


def _blind_to_parent(batch: TreeBatch) -> TreeBatch:
    return _masked(batch, lambda mask: mask & ~torch.diag(torch.ones(len(mask) - 1, dtype=torch.bool), -1))


def _running_positions(batch: TreeBatch) -> TreeBatch:
    return replace(batch, position_ids=torch.arange(batch.position_ids.shape[1])[None])


def _unshifted(batch: TreeBatch) -> TreeBatch:
    return replace(batch, reads=(batch.reads + 1).clamp(max=batch.input_ids.shape[1] - 1))


@pytest.mark.parametrize("mutate", [_causal, _end_too_late, _blind_to_parent, _running_positions, _unshifted])
@torch.no_grad()
def test_a_wrong_tree_is_noticed(mutate: Any) -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    groups = [queries_of(*PROBLEMS[1])]
    assert largest_difference(small_model(tokenizer), tokenizer, prompter, groups, "dense", mutate) > 1e-2
