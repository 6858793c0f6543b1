from __future__ import annotations

import numpy as np
import pytest

from stages.core.attention import CascadePlan, DensePlan
from stages.core.layout import batch_trees, pack
from stages.core.tree import Tree, build_tree


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
    for start, stop, sees in tree.split.branches:
        assert tree.depth[start] == sees
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
    for backend in ("dense", "cascade"):
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


def slot_visibility(plan: CascadePlan | DensePlan, slots: int) -> np.ndarray:
    """(slots, slots): what each slot of a row attends to under a plan."""
    places = len(plan.places.take)
    seen = np.zeros((places, places), dtype=bool)
    mask = plan.mask.numpy()[:, 0]
    if isinstance(plan, DensePlan):
        for row, block in enumerate(mask):
            here = slice(row * block.shape[0], (row + 1) * block.shape[0])
            seen[here, here] = block
    else:
        cut = plan.trunks * plan.length
        for row in range(plan.trunks):
            here = slice(row * plan.length, (row + 1) * plan.length)
            seen[here, here] = np.tril(np.ones((plan.length, plan.length), dtype=bool))
        for row, owner in enumerate(plan.owner.tolist()):
            here = slice(cut + row * plan.width, cut + (row + 1) * plan.width)
            seen[here, owner * plan.length : (owner + 1) * plan.length] = mask[row][:, : plan.length]
            seen[here, here] = mask[row][:, plan.length :]
    assert seen.any(axis=1).all(), "a place that sees nothing would be NaN"
    back = plan.places.back.numpy()
    assert plan.places.take.numpy()[back].tolist() == list(range(slots))
    padding = np.setdiff1d(np.arange(places), back)
    assert not seen[np.ix_(back, padding)].any(), "padding must not be seen"
    between: np.ndarray = seen[np.ix_(back, back)]
    return between


def test_packs_hold_the_budget_and_everything_once() -> None:
    sizes = [5, 300, 7, 8, 100, 3, 3]
    groups = list(pack(sizes, 200))
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    assert all(len(g) == 1 or len(g) * max(sizes[i] for i in g) <= 200 for g in groups)
    assert groups[0] == [1]
    assert list(pack([], 10)) == []
