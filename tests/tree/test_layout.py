"""Every layout shows each node exactly its ancestors, and packs keep the token budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pathfinder.models.decoder import KVCache
from pathfinder.tree.attention import BinPlan, FlexPlan, Plan
from pathfinder.tree.layout import (
    Backend,
    Suffix,
    Trunk,
    _ranges,
    backend_on,
    batch_below,
    batch_onto,
    batch_trees,
    cached_nodes,
    extend_trunks,
)
from pathfinder.tree.tree import Tree, build_tree
from tests.tree.test_tree import ancestors, random_prompts


@pytest.mark.parametrize("backend", ["dense", "cascade", "flex"])
@pytest.mark.parametrize("seed", range(6))
def test_every_layout_shows_each_node_its_ancestors(seed: int, backend: Backend) -> None:
    trees = []
    for number in range(3):
        trees.append(whole_tree(random_prompts(seed * 10 + number, 15 if number else 1)))
    assert_ancestors_are_shown(trees, backend)


@pytest.mark.parametrize("backend", ["dense", "cascade", "flex"])
def test_long_branches_are_laid_out_as_trees(backend: Backend) -> None:
    trunk = np.arange(400, dtype=np.int32)
    prompts = [trunk]
    for at, cut, size in ((1, 90, 300), (2, 90, 300), (3, 200, 60), (4, 200, 60), (5, 310, 96), (6, 399, 1)):
        prompts.append(np.concatenate([trunk[:cut], np.full(size, 1000 + at, dtype=np.int32)]))
    for cut in (100, 380):
        prompts.append(np.concatenate([prompts[1][:cut], np.full(20, 2000 + cut, dtype=np.int32)]))
    batches = {name: assert_ancestors_are_shown([whole_tree(prompts)] * 2, name) for name in (backend, "dense")}
    if backend == "cascade":
        assert 3 * scores_of(batches["cascade"]) < scores_of(batches["dense"])


def whole_tree(prompts: list[np.ndarray]) -> Tree:
    return build_tree(prompts, [(i, len(p) - 1) for i, p in enumerate(prompts)])


def scores_of(plan: Plan) -> int:
    """The number of pairs of a query and a key that a plan computes."""
    assert isinstance(plan, BinPlan)
    return sum(part.size * (part.size + sum(high - low for _, low, high in part.keys)) for part in plan.bins)


def assert_ancestors_are_shown(trees: list[Tree], backend: Backend) -> Plan:
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
    return batch.plan


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


def numbered(numbers: np.ndarray) -> KVCache:
    """A cache whose keys are numbers."""
    keys = torch.from_numpy(numbers.astype(np.float32)).view(1, -1, 1)
    return {0: (keys, keys)}


def seen_numbers(plan: Plan, row: np.ndarray) -> list[list[float]]:
    """The numbers of the keys that each slot of a row sees, where ``row`` are the numbers of its own keys."""
    caches = [cache[0][0].flatten().numpy() for cache in plan.caches]
    if isinstance(plan, FlexPlan):
        keys, order, end = np.concatenate([*caches, row]), plan.key_order.numpy(), plan.key_end.numpy()
        assert len(keys) == len(order) == len(end)
        return [sorted(keys[(order <= query) & (query < end)].tolist()) for query in plan.order.numpy()]
    parts, found = np.split(row, np.cumsum([part.size for part in plan.bins])[:-1]), []
    for own, part in zip(parts, plan.bins, strict=True):
        scope = [(parts[at] if at >= 0 else caches[~at])[low:high] for at, low, high in part.keys]
        mask = np.tri(part.size, dtype=bool) if part.mask is None else part.mask.numpy()
        found += [sorted(np.concatenate([*scope, own])[line].tolist()) for line in mask]
    return found


@pytest.mark.parametrize("backend", ["dense", "cascade", "flex"])
@pytest.mark.parametrize("shared", [0, 3])
def test_suffixes_see_the_ancestors_of_their_node_and_their_own_tokens(shared: int, backend: Backend) -> None:
    trees = [whole_tree(random_prompts(seed, 15)) for seed in (3, 4, 6)]
    bases = np.cumsum([0, *map(len, trees)])
    trunks = []
    for tree, base in zip(trees, bases[:-1], strict=True):
        nodes = tree.split.trunk[:shared]
        trunks.append(Trunk(tree.ids[nodes], numbered(base + nodes)))
    batch = batch_onto(trees, trunks, backend) if shared else batch_trees(trees, backend)
    row = np.empty(batch.input_ids.shape[1])
    for slots, base in zip(batch.slots, bases[:-1], strict=True):
        row[slots[slots >= 0]] = base + np.flatnonzero(slots >= 0)
    suffixes, expected, wanted, ids, positions = list[Suffix](), [], list[int](), list[int](), list[int]()
    for number, sizes in ((0, (60, 36, 7)), (2, (2, 96, 1))):
        tree = trees[number]
        for node, size in zip((0, len(tree) // 2, len(tree) - 1), sizes, strict=True):
            depth, count = int(tree.depth[node]) + 1, len(ids)
            fresh = np.arange(100, 100 + size, dtype=np.int32)
            suffixes.append(Suffix(number, node, fresh, depth, (0, size - 1)))
            above = [float(bases[number] + at) for at in ancestors(tree, node)]
            own = [float(1000 + count + place) for place in range(size)]
            expected += [sorted(above + own[: place + 1]) for place in range(size)]
            wanted += [count, count + size - 1]
            ids += fresh.tolist()
            positions += range(depth, depth + size)
    below = batch_below(trees, batch, numbered(row), suffixes, trunks if shared else (), backend)
    assert (below.input_ids.tolist(), below.position_ids.tolist(), below.reads.tolist()) == ([ids], [positions], wanted)
    assert seen_numbers(below.plan, 1000.0 + np.arange(len(ids))) == expected
    if isinstance(below.plan, BinPlan):
        assert [part.size for part in below.plan.bins] == [96, 7, 2, 96, 1]


def test_a_batch_moves_to_a_device_whole() -> None:
    batch = batch_trees([whole_tree(random_prompts(6, 15))], "cascade")
    kept, moved = batch.to("cpu", torch.float64), batch.to("meta", torch.bfloat16)
    for name in ("input_ids", "position_ids", "reads"):
        assert torch.equal(getattr(kept, name), getattr(batch, name))
        assert getattr(moved, name).device.type == "meta"
    assert kept.slots is moved.slots is batch.slots
    for plan, device, dtype in ((kept.plan, "cpu", torch.float64), (moved.plan, "meta", torch.bfloat16)):
        assert isinstance(plan, BinPlan)
        masks = [part.mask for part in plan.bins if part.mask is not None]
        assert {(mask.device.type, mask.dtype) for mask in masks} == {(device, dtype)}


def numbered_trunks(trees: list[Tree], shared: int) -> list[Trunk]:
    """The first ``shared`` nodes of each trunk; their keys are the numbers of the nodes, counted over all trees."""
    bases = np.cumsum([0, *map(len, trees)])
    nodes = [tree.split.trunk[:shared] for tree in trees]
    pairs = zip(bases[:-1], trees, nodes, strict=True)
    return [Trunk(tree.ids[at], numbered(base + at)) for base, tree, at in pairs]


def branching(*branches: tuple[int, int], length: int = 300) -> Tree:
    """A trunk of ``length`` tokens with side branches: where each leaves the trunk, and its tokens."""
    trunk = np.arange(length, dtype=np.int32)
    prompts = [trunk]
    for number, (cut, size) in enumerate(branches):
        prompts.append(np.concatenate([trunk[:cut], np.full(size, 1000 + number, dtype=np.int32)]))
    return whole_tree(prompts)


@pytest.mark.parametrize("backend", ["dense", "cascade", "flex"])
@pytest.mark.parametrize("shared", [0, 3, 50])
def test_each_slot_sees_every_ancestor_once_below_cached_trunks_too(shared: int, backend: Backend) -> None:
    nested = branching((90, 150), (90, 270), (200, 60), length=400)
    below = [nested.ids[: 90 + 1], np.full(300, 5, dtype=np.int32)]
    trees = [whole_tree(random_prompts(3, 15)), nested, whole_tree([*below, np.concatenate([*below, below[1]])])]
    trees += [branching((60, 270), (200, 270), (200, 20))]
    trunks = numbered_trunks(trees, shared)
    batch = batch_onto(trees, trunks, backend)
    bases = np.cumsum([0, *map(len, trees)])
    row = np.empty(batch.input_ids.shape[1])
    expected: dict[int, list[float]] = {}
    for tree, slots, base in zip(trees, batch.slots, bases[:-1], strict=True):
        assert set(slots[slots < 0].tolist()) <= {-1}
        for node in np.flatnonzero(slots >= 0).tolist():
            row[slots[node]] = base + node
            expected[slots[node]] = [float(base + at) for at in ancestors(tree, node)]
    assert seen_numbers(batch.plan, row) == [sorted(expected[slot]) for slot in range(len(row))]
    assert {part.dtype for part in (batch.input_ids, batch.position_ids, batch.reads)} == {torch.int64}


def sizes_of(tree: Tree) -> list[int]:
    plan = batch_trees([tree], "cascade").plan
    assert isinstance(plan, BinPlan)
    return [part.size for part in plan.bins]


def test_short_branches_share_bins_of_at_most_96_slots() -> None:
    assert sizes_of(branching((250, 60), (240, 36), (230, 1), (220, 95), (210, 2), (200, 94), length=600)) == [
        600,
        96,
        96,
        96,
    ]
    assert sizes_of(branching((250, 60), (240, 37), (230, 59), length=600)) == [600, 96, 60]


def test_a_branch_of_at_most_256_nodes_is_a_bin_and_a_longer_one_a_tree() -> None:
    assert sizes_of(branching((230, 256), (240, 1), length=600)) == [600, 256, 1]
    assert sizes_of(branching((230, 257), (240, 1), length=600)) == [600, 1, 257]


def test_a_tree_of_at_most_96_nodes_is_one_bin() -> None:
    assert sizes_of(branching((10, 6), length=90)) == [96]
    assert sizes_of(branching((10, 7), length=90)) == [90, 7]


def test_a_path_needs_no_mask() -> None:
    plan = batch_trees([branching(length=200)], "cascade").plan
    assert isinstance(plan, BinPlan)
    assert [(part.size, part.keys, part.mask) for part in plan.bins] == [(200, (), None)]


def test_flex_is_the_choice_for_a_model_on_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for a model on the CPU that nobody moves to a device must hold its own masks, on every machine."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert isinstance(batch_trees([branching(length=8)]).plan, BinPlan)
    assert [backend_on(torch.device(kind)) for kind in ("cpu", "cuda:1")] == ["cascade", "flex"]


def test_a_cached_trunk_is_read_again_from_its_first_reading() -> None:
    ids = np.arange(9, dtype=np.int32)
    tree = build_tree([ids], [(0, 2), (0, 5), (0, 8)])
    assert [cached_nodes(tree, ids[:size]) for size in (0, 1, 2, 3, 9)] == [0, 1, 2, 2, 2]
    assert cached_nodes(build_tree([ids], [(0, 8)]), ids[:7]) == 7


def test_the_nodes_below_a_cached_trunk_are_laid_out_alone() -> None:
    trunk = np.arange(9, dtype=np.int32)
    tree = build_tree([trunk, np.array([0, 1, 50, 51], dtype=np.int32)], [(1, 3)])
    batch = batch_onto([tree], [Trunk(trunk, numbered(tree.split.trunk))], "cascade")
    assert batch.input_ids.tolist() == [[50, 51]]
    first, second = (float(node) for node in np.flatnonzero(batch.slots[0] >= 0))
    assert seen_numbers(batch.plan, np.array([first, second])) == [[0, 1, first], [0, 1, first, second]]


def test_ranges_of_keys_span_gaps_of_at_most_fifteen_keys() -> None:
    assert _ranges(np.array([0, 1, 17, 34])) == [(0, 18), (34, 35)]


def test_a_suffix_may_begin_below_any_tree() -> None:
    trees = [whole_tree(random_prompts(seed, 15)) for seed in (3, 4)]
    batch = batch_trees(trees, "cascade")
    suffix = Suffix(1, 0, np.arange(2, dtype=np.int32), 1, (1,))
    row = np.concatenate([slots.argsort() + base for slots, base in zip(batch.slots, (0, 100), strict=True)])
    below = batch_below(trees, batch, numbered(row), [suffix], (), "cascade")
    assert seen_numbers(below.plan, np.array([1000.0, 1001.0])) == [[100, 1000], [100, 1000, 1001]]


def test_trunks_and_batches_of_other_trees_are_refused() -> None:
    trees = [whole_tree(random_prompts(seed, 15)) for seed in (3, 4)]
    trunks = numbered_trunks(trees, 3)
    batch = batch_onto(trees, trunks, "cascade")
    cache = numbered(np.arange(batch.input_ids.shape[1]))
    suffixes = [Suffix(0, 0, np.arange(2, dtype=np.int32), 1, (1,))]
    with pytest.raises(ValueError, match="zip"):
        batch_onto(trees, [*trunks, trunks[0]], "cascade")
    with pytest.raises(ValueError, match="zip"):
        extend_trunks(trees, trunks[:1], batch, cache)
    with pytest.raises(ValueError, match="zip"):
        batch_below(trees, batch_trees(trees[:1], "cascade"), cache, suffixes)
    with pytest.raises(ValueError, match="zip"):
        batch_below(trees, batch, cache, suffixes, trunks[:1], "flex")
