"""Every layout shows each node exactly its ancestors, and packs keep the token budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pathfinder.tree.attention import FlexPlan, Plan
from pathfinder.tree.layout import Backend, Trunk, batch_onto, batch_trees, extend_trunks, pack
from pathfinder.tree.tree import build_tree
from tests.tree.test_tree import ancestors, random_prompts


@pytest.mark.parametrize("backend", ["dense", "cascade", "flex"])
@pytest.mark.parametrize("seed", range(6))
def test_every_layout_shows_each_node_its_ancestors(seed: int, backend: Backend) -> None:
    trees = []
    for number in range(3):
        prompts = random_prompts(seed * 10 + number, 15 if number else 1)
        trees.append(build_tree(prompts, [(i, len(p) - 1) for i, p in enumerate(prompts)]))
    batch = batch_trees(trees, backend)
    seen = slot_visibility(batch.plan, batch.input_ids.shape[1])
    ids, positions = batch.input_ids[0].numpy(), batch.position_ids[0].numpy()
    reads = iter(batch.reads.tolist())
    for tree in trees:
        for node in tree.reads:
            slot, path = next(reads), ancestors(tree, node)
            shown = np.flatnonzero(seen[slot])
            shown = shown[np.argsort(positions[shown], kind="stable")]
            assert ids[shown].tolist() == tree.ids[path].tolist()
            assert positions[shown].tolist() == list(range(len(path)))
    assert next(reads, None) is None


def slot_visibility(plan: Plan, slots: int) -> np.ndarray:
    """(slots, slots): the slots that each slot of a row attends to under a plan."""
    if isinstance(plan, FlexPlan):
        order, end = plan.order.numpy(), plan.key_end.numpy()
        visible: np.ndarray = (order[None, :] <= order[:, None]) & (order[:, None] < end[None, :])
        return visible
    assert sum(part.size for part in plan.bins) == slots
    starts = np.cumsum([0, *(part.size for part in plan.bins)])
    seen = np.zeros((slots, slots), dtype=bool)
    for number, part in enumerate(plan.bins):
        keys = [np.arange(low, high) + starts[at] for at, low, high in part.keys]
        keys.append(np.arange(part.size) + starts[number])
        mask = np.tri(part.size, dtype=bool) if part.mask is None else part.mask.numpy()
        seen[np.ix_(np.arange(part.size) + starts[number], np.concatenate(keys))] = mask
    return seen


@pytest.mark.parametrize("backend", ["dense", "cascade", "flex"])
@pytest.mark.parametrize("shared", [0, 3])
def test_an_extended_trunk_has_the_keys_of_its_nodes_in_order(shared: int, backend: Backend) -> None:
    prompts = random_prompts(3, 15)  # a trunk that is not the first nodes
    tree = build_tree(prompts, [(i, len(p) - 1) for i, p in enumerate(prompts)])
    nodes = tree.split.trunk
    known = torch.from_numpy(nodes[:shared].astype(np.float32)).view(1, -1, 1)
    trunk = Trunk(tree.ids[nodes[:shared]], {0: (known, known)})
    batch = batch_onto([tree], [trunk], backend)
    (slots,) = batch.slots
    assert (slots < 0).sum() == shared
    row = torch.empty(1, batch.input_ids.shape[1], 1)  # a cache in which the key of a node is its number
    row[0, slots[slots >= 0], 0] = torch.from_numpy(np.flatnonzero(slots >= 0).astype(np.float32))
    (extended,) = extend_trunks([tree], [trunk], batch, {0: (row, row)})
    assert extended.ids.tolist() == tree.ids[nodes].tolist()
    for part in extended.cache[0]:
        assert part.flatten().tolist() == nodes.tolist()


def test_packs_keep_the_budget_and_contain_everything_once() -> None:
    sizes = [5, 300, 7, 8, 100, 3, 3]
    groups = list(pack(sizes, 200))
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    assert all(len(g) == 1 or len(g) * max(sizes[i] for i in g) <= 200 for g in groups)
    assert groups[0] == [1]
    assert list(pack([], 10)) == []


def test_a_large_pack_ends_before_an_item_of_mostly_padding() -> None:
    assert list(pack([600, 500, 599], 10_000)) == [[0, 2], [1]]
    assert list(pack([300, 200, 299], 10_000)) == [[0, 2, 1]]  # too small for a pass of its own
