"""What attention over trees costs on a card, by counting: which layout of a row computes how many pairs.

Run: PATHFINDER_MIRROR=<folder of real files> pytest -m benchmarks -s tests/tree/test_card_attention.py

A pair is a query with a key that its score is computed for. FlexAttention computes whole blocks. The floor is the pairs
that the mask shows. Their share of the products of a forward pass bounds what any other kernel could save.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import flex_attention

from pathfinder.core.prompts import VARIANTS
from pathfinder.models.shapes import KNOWN
from pathfinder.tree.attention import BinPlan, FlexPlan
from pathfinder.tree.layout import batch_trees
from pathfinder.tree.packing import pack
from pathfinder.tree.passes import Prompter, Query
from pathfinder.tree.tree import Tree
from tests.support.models import plain_tokenizer

pytestmark = pytest.mark.benchmarks
_SETS = {"gsm8k": ("gsm8k", 0), "math": ("math", 0), "long": ("math", 10)}
_SOLUTIONS = 40
_CACHE_BLOCK = 16  # tokens of a block of vLLM's prefix cache


@dataclass(frozen=True)
class Layout:
    """Slots of the rows and pairs that a way of laying them out computes."""

    slots: int
    pairs: int


def queries_of(mirror: Path, name: str) -> tuple[Prompter, list[list[Query]]]:
    """The prompter, and the steps of each of the last solutions of a set."""
    subset, least = _SETS[name]
    rows = json.loads((mirror / "processbench" / f"{subset}.json").read_text())
    chosen = [row for row in rows if len(row["steps"]) >= least][-_SOLUTIONS:]
    tokenizer = plain_tokenizer([text for row in rows[:300] for text in (row["problem"], *row["steps"])], 2000)
    asked = [
        [Query("q", row["problem"], tuple(row["steps"][:t]), step) for t, step in enumerate(row["steps"])]
        for row in chosen
    ]
    return Prompter(tokenizer, VARIANTS["full"]), asked


def trees_of(mirror: Path, name: str) -> tuple[list[Tree], list[int]]:
    """A tree of both passes for each solution, and the lengths of the published prompts of one pass."""
    prompter, asked = queries_of(mirror, name)
    trees = [prompter.tree(queries, [[True, True, True]] * len(queries))[0] for queries in asked]
    return trees, [len(ids) for queries in asked for ids, _ in prompter.encode(queries)]


def rows_of(trees: Sequence[Tree], budget: int) -> Iterator[list[Tree]]:
    for group in pack([len(tree) for tree in trees], budget):
        yield [trees[at] for at in group]


def flex_plan(trees: Sequence[Tree]) -> FlexPlan:
    plan = batch_trees(trees, "flex").plan
    assert isinstance(plan, FlexPlan)
    return plan


def blocks(plan: FlexPlan, size: int) -> int:
    """Pairs in the blocks of ``size`` queries and keys that hold a visible pair."""
    order, start, end = (x.numpy() for x in (plan.order, plan.key_order, plan.key_end))
    found = 0
    for low in range(0, len(order), size):
        queries = order[low : low + size, None]
        seen = ((start <= queries) & (queries < end)).any(axis=0)
        found += size * size * len(np.unique(np.flatnonzero(seen) // size))
    return found


def counted(plan: FlexPlan) -> int:
    """The same for 128 by the mask that FlexAttention gets, which takes longer to make on a CPU."""
    mask = plan.to("cpu", torch.float32).block_mask
    return 128 * 128 * int(mask.kv_num_blocks.sum() + mask.full_kv_num_blocks.sum())


def layouts(trees: Sequence[Tree], prompts: Sequence[int], budget: int) -> dict[str, Layout]:
    """The ways to lay out the trees, in rows of at most ``budget`` slots."""
    slots = sum(len(tree) for tree in trees)
    found = dict.fromkeys(("FlexAttention, blocks of 128", "FlexAttention, blocks of 64", "two-level cascade"), 0)
    for row in rows_of(trees, budget):
        flex, cascade = flex_plan(row), batch_trees(row, "cascade").plan
        assert isinstance(cascade, BinPlan)
        whole = blocks(flex, 128)
        assert budget > 4096 or whole == counted(flex)
        found["FlexAttention, blocks of 128"] += whole
        found["FlexAttention, blocks of 64"] += blocks(flex, 64)
        found["two-level cascade"] += sum(
            part.queries * (part.size + sum(stop - start for _, start, stop in part.keys)) for part in cascade.bins
        )
    padded = [-(-len(tree) // 128) * 128 for tree in trees]
    apart = sum(blocks(flex_plan([tree]), 128) for tree in trees)
    visible = sum(int((tree.depth.astype(np.int64) + 1).sum()) for tree in trees)
    return {
        "visible pairs: gathered keys, variable lengths": Layout(slots, visible),
        **{name: Layout(slots, pairs) for name, pairs in found.items()},
        "trees padded to blocks of 128": Layout(sum(padded), apart),
        "one prompt per step and pass, causal blocks": Layout(
            2 * sum(prompts), sum(128 * 128 * (n := -(-length // 128)) * (n + 1) for length in prompts)
        ),
    }


def products(shape: str, layout: Layout) -> tuple[float, float]:
    """Products of a forward pass in the matrices and in the attention of a model of this shape."""
    model = KNOWN[shape]
    return float(
        model.layers * model.matrix_parameters
    ) * layout.slots, 2.0 * model.query_width * model.layers * layout.pairs


@pytest.mark.parametrize("name", [*_SETS])
def test_what_a_kernel_could_save(mirror: Path, name: str) -> None:
    trees, prompts = trees_of(mirror, name)
    print(f"\n{name}: {len(trees)} solutions, {len(prompts)} steps, {sum(len(t) for t in trees):,} nodes")
    for budget in (4096, 16384):
        found = layouts(trees, prompts, budget)
        floor = found["visible pairs: gathered keys, variable lengths"]
        assert all(layout.pairs >= floor.pairs for layout in found.values())
        print(f"  rows of at most {budget:,} tokens: pairs per visible pair; share of attention in 1.5B, in 7B")
        for what, layout in found.items():
            shares = []
            for size in ("1.5B", "7B"):
                matrices, attention = products(f"Qwen/Qwen2.5-Math-{size}-Instruct", layout)
                shares.append(f"{100 * attention / (matrices + attention):4.1f} %")
            print(f"    {what:47} {layout.pairs / floor.pairs:5.2f}; {', '.join(shares)}")


@pytest.mark.parametrize("name", [*_SETS])
def test_what_a_prefix_cache_computes_again(mirror: Path, name: str) -> None:
    """Tokens of both passes: each once, as trees and kept trunks compute them, or from the last known block on."""
    prompter, asked = queries_of(mirror, name)
    nodes = sum(len(prompter.tree(queries, [[True, True, True]] * len(queries))[0]) for queries in asked)
    known, cached, plain = set[bytes](), 0, 0
    for ids, (math, consistency, correct) in prompter.encode([query for queries in asked for query in queries]):
        second = ids[:correct].copy()
        second[[math, consistency]] = prompter.ids.good
        for prompt in (ids[:math], ids[:consistency], second):
            ends = range(_CACHE_BLOCK, len(prompt), _CACHE_BLOCK)  # the last token is always computed
            cached += len(prompt) - max((end for end in ends if prompt[:end].tobytes() in known), default=0)
            known |= {prompt[:end].tobytes() for end in range(_CACHE_BLOCK, len(prompt) + 1, _CACHE_BLOCK)}
        plain += consistency + correct  # the first pass is one prompt
    print(f"\n{name}: trees {nodes:,} tokens, a prefix cache {cached:,} ({cached / nodes:.2f} times), "
          f"one prompt per step and pass {plain:,} ({plain / nodes:.1f} times)")  # fmt: skip


def test_how_many_kernels_are_compiled(mirror: Path) -> None:
    """Rows of many lengths, each with another number of queries, readings and cached keys, share compiled kernels."""
    trees, _ = trees_of(mirror, "gsm8k")
    counters.clear()
    torch._dynamo.reset()
    attend = torch.compile(flex_attention, dynamic=True, backend="eager")
    for number in range(1, 6):
        row = trees[:number]
        batch = batch_trees(row, "flex")
        for plan in (batch.plan.to("cpu", torch.float32), batch.plan.select_queries(batch.reads)):
            assert isinstance(plan, FlexPlan)
            query, key = torch.randn(1, 1, len(plan.order), 16), torch.randn(1, 1, len(plan.key_order), 16)
            attend(query, key, key, block_mask=plan.block_mask)
    graphs = counters["stats"]["unique_graphs"]
    print(f"\n5 rows of different lengths, all slots or only the readings: {graphs} kernels")
    assert graphs <= 8
