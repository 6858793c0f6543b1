"""A tree holds every prompt as a path and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

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
    """The nodes that a node may see, itself included."""
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
    distinct = {tuple(p[: n + 1].tolist()) for p in prompts for n in range(len(p))}
    assert len(tree) == len(distinct)
    covered = set(tree.split.trunk.tolist())
    for start, stop in tree.split.branches:
        assert not covered & set(range(start, stop))
        covered |= set(range(start, stop))
    assert covered == set(range(len(tree)))


def test_tokens_after_the_last_reading_are_dropped_and_readings_are_checked() -> None:
    tree = build_tree([np.arange(9, dtype=np.int32)], [(0, 4)])
    assert tree.ids.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(IndexError, match="reading 0"):
        build_tree([np.arange(3, dtype=np.int32)], [(0, 3)])


def test_the_trunk_follows_the_largest_subtree_in_every_part_of_a_tree() -> None:
    prompts = random_prompts(3, 12)
    tree = build_tree(prompts, [(i, len(p) - 1) for i, p in enumerate(prompts)])
    parts = [(node + 1, int(tree.end[node])) for node in range(len(tree)) if node + 1 < tree.end[node]]
    for start, stop in [(0, len(tree)), *parts]:
        split = tree.heavy_path(start, stop)
        trunk = split.trunk.tolist()
        assert tree.end[trunk[-1]] == trunk[-1] + 1
        assert ancestors(tree, trunk[-1])[-len(trunk) :] == trunk
        at_depth = {int(tree.depth[node]): node for node in trunk}
        for first, end in split.branches:
            rival = at_depth[int(tree.depth[first])]
            assert end == tree.end[first]
            assert end - first <= tree.end[rival] - rival
        branched = [node for first, end in split.branches for node in range(first, end)]
        assert sorted(trunk + branched) == list(range(start, stop))


def test_siblings_are_in_the_order_of_their_token_ids() -> None:
    prompts = [np.array([7, last], dtype=np.int32) for last in (512, 70000, 257, 2)]
    assert build_tree(prompts, [(i, 1) for i in range(4)]).ids.tolist() == [7, 2, 257, 512, 70000]


def test_a_tree_without_prompts_is_empty() -> None:
    tree = build_tree([], [])
    assert len(tree) == 0
    assert tree.split.trunk.dtype == np.int64
