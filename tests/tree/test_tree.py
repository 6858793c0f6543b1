from __future__ import annotations

import numpy as np
import pytest

from pathfinder.tree.attention import FlexPlan, Plan
from pathfinder.tree.layout import Backend, batch_trees, pack
from pathfinder.tree.tree import Tree, build_tree


def random_prompts(seed: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made: list[np.ndarray] = [rng.integers(0, 3, size=rng.integers(1, 12)).astype(np.int32)]
    for _ in range(count - 1):
        old = made[rng.integers(len(made))]
        cut = rng.integers(0, len(old) + 1)
        made.append(np.concatenate([old[:cut], rng.integers(0, 70000, size=rng.integers(1, 9)).astype(np.int32)]))
    return made


def ancestors(tree: Tree, node: int) -> list[int]:
    return [k for k in range(len(tree)) if k <= node < tree.end[k]]


@pytest.mark.parametrize("seed", range(20))
def test_every_prompt_is_a_path_and_nothing_else_is_visible(seed: int) -> None:
    prompts = random_prompts(seed, 12)
    prompts.append(prompts[3])
    reads = [(i, len(p) - 1) for i, p in enumerate(prompts)] + [(0, 0)]
    tree = build_tree(prompts, reads)
    for (index, position), node in zip(reads, tree.reads, strict=True):
        path = ancestors(tree, node)
        assert tree.ids[path].tolist() == prompts[index][: position + 1].tolist()
        assert tree.depth[path].tolist() == list(range(position + 1))
        assert np.flatnonzero(tree.visible()[node]).tolist() == path
    distinct = {tuple(p[: n + 1].tolist()) for p in prompts for n in range(len(p))}
    assert len(tree) == len(distinct)
    covered = set(tree.split.trunk.tolist())
    for start, stop in tree.split.branches:
        assert not covered & set(range(start, stop))
        covered |= set(range(start, stop))
    assert covered == set(range(len(tree)))


def test_what_follows_the_last_reading_is_left_out_and_readings_are_checked() -> None:
    tree = build_tree([np.arange(9, dtype=np.int32)], [(0, 4)])
    assert tree.ids.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(IndexError, match="reading 0"):
        build_tree([np.arange(3, dtype=np.int32)], [(0, 3)])


@pytest.mark.parametrize("seed", range(6))
def test_both_layouts_show_each_node_its_ancestors(seed: int) -> None:
    trees = []
    for number in range(3):
        prompts = random_prompts(seed * 10 + number, 15 if number else 1)
        trees.append(build_tree(prompts, [(i, len(p) - 1) for i, p in enumerate(prompts)]))
    backends: tuple[Backend, ...] = ("dense", "cascade", "flex")
    for backend in backends:
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


def slot_visibility(plan: Plan, slots: int) -> np.ndarray:
    """(slots, slots): what each slot of a row attends to under a plan."""
    if isinstance(plan, FlexPlan):
        order, end = plan.order.numpy(), plan.key_end.numpy()
        either: np.ndarray = (order[None, :] <= order[:, None]) & (order[:, None] < end[None, :])
        return either
    assert sum(one.size for one in plan.bins) == slots
    starts = np.cumsum([0, *(one.size for one in plan.bins)])
    seen = np.zeros((slots, slots), dtype=bool)
    for number, one in enumerate(plan.bins):
        keys = [np.arange(low, high) + starts[at] for at, low, high in one.parts]
        keys.append(np.arange(one.size) + starts[number])
        mask = np.tri(one.size, dtype=bool) if one.mask is None else one.mask.numpy()
        seen[np.ix_(np.arange(one.size) + starts[number], np.concatenate(keys))] = mask
    return seen


def test_packs_hold_the_budget_and_everything_once() -> None:
    sizes = [5, 300, 7, 8, 100, 3, 3]
    groups = list(pack(sizes, 200))
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    assert all(len(g) == 1 or len(g) * max(sizes[i] for i in g) <= 200 for g in groups)
    assert groups[0] == [1]
    assert list(pack([], 10)) == []
