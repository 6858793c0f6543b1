"""Trees laid out for one forward pass: a row of tokens, and a plan for the attention over it.

``batch_trees`` lays out whole trees. ``batch_onto`` leaves out the part of each trunk that an earlier pass computed, as
the rounds of a search do. ``batch_below`` continues below nodes of a batch that has just run: the PRM's second pass.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from pathfinder.models.decoder import KVCache
from pathfinder.models.tokens import Ids
from pathfinder.tree.attention import Bin, BinPlan, FlexPlan, KeyRange, Plan
from pathfinder.tree.packing import split
from pathfinder.tree.tree import Split, Tree, shared_prefix

Backend = Literal["cascade", "dense", "flex"]
"""``dense`` is the reference: a mask over every whole tree. ``flex`` is for a GPU (``backend_on``)."""
_BIN = 96
"""Slots of a bin of branches. Short side branches share a bin, masked from each other (measured on one CPU core)."""
_LONG_BRANCH = 256
"""A side branch with more nodes is laid out as a separate tree."""
_SMALL_TREE = 96
"""A tree of at most this many nodes is one bin."""
_GAP = 16
"""The number of hidden keys between visible ones that costs less than concatenating one more range."""

_Ints = npt.NDArray[np.integer]
_Numbers = npt.NDArray[np.int64]
_Spans = npt.NDArray[np.int64]
"""(2, slots): ``order`` and ``end`` of some slots, see ``attention``."""


@dataclass(frozen=True, slots=True)
class Trunk:
    """The token ids of a trunk and the keys and values that a model computed for them in every layer."""

    ids: Ids
    cache: KVCache


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """Several trees as one row of ``slots`` tokens for one forward pass."""

    input_ids: torch.Tensor
    """int64 (1, slots)"""
    position_ids: torch.Tensor
    """int64 (1, slots)"""
    reads: torch.Tensor
    """int64 (readings of all trees, tree by tree): the slots whose logits are wanted"""
    plan: Plan
    slots: tuple[_Numbers, ...]
    """For each tree the slot of each node, or -1 if an earlier pass computed the node."""

    def to(self, device: torch.device | str, dtype: torch.dtype) -> TreeBatch:
        """The batch on ``device``, with masks in the model's ``dtype``."""
        ids, positions, reads = (x.to(device) for x in (self.input_ids, self.position_ids, self.reads))
        return TreeBatch(ids, positions, reads, self.plan.to(device, dtype), self.slots)


@dataclass(frozen=True, slots=True)
class Suffix:
    """Tokens ``ids`` that continue below ``node`` of the batch's tree number ``tree``, the first at position ``depth``.

    ``reads`` are the indices into ``ids`` whose logits are wanted.
    """

    tree: int
    node: int
    ids: Ids
    depth: int
    reads: tuple[int, ...]


@dataclass(slots=True)
class _Draft:
    """The size of a future bin, and the ranges of the row (``_ROW``) and of caches (``~number``) that it may see."""

    size: int
    scope: tuple[KeyRange, ...]


_ROW = 0


def backend_on(device: torch.device) -> Backend:
    """The fast back end for a model on ``device``: a machine with a GPU may run a model on its CPU."""
    return "flex" if device.type == "cuda" else "cascade"


def batch_trees(trees: Sequence[Tree], backend: Backend = "cascade") -> TreeBatch:
    """Arrange whole trees."""
    return _batch(trees, [0] * len(trees), backend, ())


def batch_onto(trees: Sequence[Tree], trunks: Sequence[Trunk], backend: Backend = "cascade") -> TreeBatch:
    """Arrange trees without the first nodes of their trunks that ``trunks``, one per tree, already hold."""
    cached = [cached_nodes(tree, trunk.ids) for tree, trunk in zip(trees, trunks, strict=True)]
    return _batch(trees, cached, backend, tuple(trunk.cache for trunk in trunks))


def batch_below(
    trees: Sequence[Tree],
    batch: TreeBatch,
    cache: KVCache,
    suffixes: Sequence[Suffix],
    trunks: Sequence[Trunk] = (),
    backend: Backend = "cascade",
) -> TreeBatch:
    """Arrange suffixes below a batch that has run and filled ``cache``. Readings are in the order of the suffixes.

    ``suffixes`` are ordered by tree. ``trunks`` are the trunks that the batch was laid onto, if any.
    """
    cached = [int((slots < 0).sum()) for slots in batch.slots]
    computed = _spans(trees, [np.argsort(slots)[skip:] for slots, skip in zip(batch.slots, cached, strict=True)])
    before = [np.concatenate(computed, axis=1), *(_trunk_spans(trees, cached) if trunks else ())]
    starts = np.cumsum([0, *(part.shape[1] for part in computed)]).tolist()
    bases = np.cumsum([0, *(len(tree) for tree in trees)]).tolist()
    # Node n gets order n * stride, so there is a free order for each new slot before node n + 1.
    stride = 1 + sum(len(suffix.ids) for suffix in suffixes)
    spans, positions, reads = [], [], list[int]()
    drafts: list[_Draft] = []
    count, last = 0, -1
    for suffix in suffixes:
        size, tree = len(suffix.ids), suffix.tree
        first = (bases[tree] + suffix.node) * stride + 1 + count
        spans.append(np.stack([np.arange(first, first + size), np.full(size, first + size)]))
        positions.append(np.arange(suffix.depth, suffix.depth + size))
        reads += [count + place for place in suffix.reads]
        if tree != last or drafts[-1].size + size > _BIN:
            trunk = (KeyRange(~(1 + tree), 0, cached[tree]),) if trunks else ()
            drafts.append(_Draft(0, (*trunk, KeyRange(~0, starts[tree], starts[tree + 1]))))
            last = tree
        drafts[-1].size += size
        count += size
    caches = (cache, *(trunk.cache for trunk in trunks))
    plan = _plan(backend, np.concatenate(spans, axis=1), drafts, [stride * part for part in before], caches)
    return TreeBatch(_row([suffix.ids for suffix in suffixes]), _row(positions), torch.tensor(reads), plan, ())


def cached_nodes(tree: Tree, ids: Ids) -> int:
    """The number of the trunk's first nodes that an earlier pass, with the trunk ``ids``, computed."""
    shared = shared_prefix(tree.ids[tree.split.trunk], ids)
    read = np.flatnonzero(np.isin(tree.split.trunk[:shared], tree.reads))
    return int(read[0]) if len(read) else shared


def extend_trunks(trees: Sequence[Tree], trunks: Sequence[Trunk], batch: TreeBatch, cache: KVCache) -> list[Trunk]:
    """The whole trunk of each tree after ``batch_onto(trees, trunks)`` has run and filled ``cache``."""
    out = []
    for tree, trunk, slots in zip(trees, trunks, batch.slots, strict=True):
        nodes = tree.split.trunk
        placed = slots[nodes]
        cached = int((placed < 0).sum())
        new = torch.from_numpy(placed[cached:]).to(cache[0][0].device)
        extended: KVCache = {}
        for layer, fresh in cache.items():
            key, value = (
                torch.cat([old[:, :cached], x[:, new]], dim=1) for old, x in zip(trunk.cache[layer], fresh, strict=True)
            )
            extended[layer] = (key, value)
        out.append(Trunk(tree.ids[nodes], extended))
    return out


def _batch(trees: Sequence[Tree], cached: Sequence[int], backend: Backend, caches: tuple[KVCache, ...]) -> TreeBatch:
    slots: list[_Numbers] = []
    placed: list[_Numbers] = []
    ids, positions, reads = list[_Ints](), list[_Ints](), list[_Numbers]()
    drafts: list[_Draft] = []
    count = 0
    for number, (tree, known) in enumerate(zip(trees, cached, strict=True)):
        bins = list(_bins_of(tree, known, whole=backend == "dense"))
        starts = np.cumsum([count, *(len(nodes) for nodes, _ in bins)]).tolist()
        trunk = (KeyRange(~number, 0, known),) if known else ()
        for nodes, above in bins:
            ancestors = (KeyRange(_ROW, starts[at], starts[at + 1]) for at in above)
            drafts.append(_Draft(len(nodes), (*trunk, *ancestors)))
        placed.append(np.concatenate([nodes for nodes, _ in bins]))
        slots.append(np.full(len(tree), -1, dtype=np.int64))
        slots[-1][placed[-1]] = np.arange(count, starts[-1])
        ids.append(tree.ids[placed[-1]])
        positions.append(tree.depth[placed[-1]])
        reads.append(slots[-1][tree.reads])
        count = starts[-1]
    before = _trunk_spans(trees, cached) if caches else []
    plan = _plan(backend, np.concatenate(_spans(trees, placed), axis=1), drafts, before, caches)
    return TreeBatch(_row(ids), _row(positions), torch.from_numpy(np.concatenate(reads)), plan, tuple(slots))


def _bins_of(tree: Tree, cached: int, whole: bool) -> Iterator[tuple[_Numbers, tuple[int, ...]]]:
    """The nodes of each bin, without the trunk's first ``cached``, and the numbers of the bins with their ancestors."""
    if (whole or len(tree) <= _SMALL_TREE) and not cached:
        yield np.arange(len(tree), dtype=np.int64), ()
        return
    made = 0
    waiting: list[tuple[Split, int, tuple[int, ...]]] = [(tree.split, cached, ())]
    while waiting:
        path, skip, above = waiting.pop()
        if skip < len(path.trunk):
            yield path.trunk[skip:], above
            above, made = (*above, made), made + 1
        sizes = {(start, stop): stop - start for start, stop in path.branches}
        waiting += [(tree.heavy_path(*branch), 0, above) for branch, size in sizes.items() if size > _LONG_BRANCH]
        for group in split({branch: size for branch, size in sizes.items() if size <= _LONG_BRANCH}, _BIN):
            yield np.concatenate([np.arange(*branch, dtype=np.int64) for branch in group]), above
            made += 1


def _row(parts: Sequence[_Ints]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.int64))[None]


def _spans(trees: Sequence[Tree], nodes: Sequence[_Numbers]) -> list[_Spans]:
    """The spans of some nodes of each tree. The nodes of all trees are numbered consecutively."""
    bases = np.cumsum([0, *(len(tree) for tree in trees)])
    return [base + np.stack([at, tree.end[at]]) for base, tree, at in zip(bases[:-1], trees, nodes, strict=True)]


def _trunk_spans(trees: Sequence[Tree], cached: Sequence[int]) -> list[_Spans]:
    """For each tree the spans of the trunk's first ``cached`` nodes."""
    return _spans(trees, [tree.split.trunk[:skip] for tree, skip in zip(trees, cached, strict=True)])


def _plan(
    backend: Backend, row: _Spans, drafts: Sequence[_Draft], before: Sequence[_Spans], caches: tuple[KVCache, ...]
) -> Plan:
    if backend == "flex":
        keys = torch.from_numpy(np.concatenate([*before, row], axis=1))
        known = tuple(
            {layer: (k[:, : spans.shape[1]], v[:, : spans.shape[1]]) for layer, (k, v) in cache.items()}
            for spans, cache in zip(before, caches, strict=True)
        )
        return FlexPlan(torch.from_numpy(row[0]), keys[0], keys[1], known)
    starts = np.cumsum([0, *(draft.size for draft in drafts)]).tolist()
    return BinPlan(tuple(_bin(starts, at, draft.scope, row, before) for at, draft in enumerate(drafts)), caches)


def _bin(starts: Sequence[int], at: int, scope: Sequence[KeyRange], row: _Spans, before: Sequence[_Spans]) -> Bin:
    """The bin of slots ``starts[at]`` to ``starts[at + 1]``: the keys in its scope that any slot sees, and its mask."""
    own = row[:, starts[at] : starts[at + 1]]
    size = own.shape[1]
    is_chain = int(own[1].min()) > int(own[0].max())
    keys, masks = list[KeyRange](), []
    for source, start, stop in scope:
        seen = _visibility(own, (row if source == _ROW else before[~source])[:, start:stop])
        for low, high in _ranges(np.flatnonzero(seen.any(axis=0))):
            masks.append(seen[:, low:high])
            if source == _ROW:
                keys += _split_by_bin(starts, start + low, start + high)
            else:
                keys.append(KeyRange(source, start + low, start + high))
    if is_chain and not keys:
        return Bin(size, size)
    masks.append(np.tri(size, dtype=np.bool_) if is_chain else _visibility(own, own))
    return Bin(size, size, tuple(keys), torch.from_numpy(np.concatenate(masks, axis=1)))


def _visibility(queries: _Spans, keys: _Spans) -> npt.NDArray[np.bool_]:
    """(queries, keys)"""
    query = queries[0][:, None]
    visible: npt.NDArray[np.bool_] = (keys[0] <= query) & (query < keys[1])
    return visible


def _ranges(numbers: _Numbers) -> list[tuple[int, int]]:
    """Ascending numbers as ranges that span small gaps."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) > _GAP)
    lows, highs = numbers[np.r_[0, breaks + 1]], numbers[np.r_[breaks, len(numbers) - 1]] + 1
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def _split_by_bin(starts: Sequence[int], low: int, high: int) -> list[KeyRange]:
    """Slots ``low`` to ``high`` of the row as ranges within its bins."""
    out = []
    while low < high:
        at = bisect_right(starts, low) - 1
        stop = min(high, starts[at + 1])
        out.append(KeyRange(at, low - starts[at], stop - starts[at]))
        low = stop
    return out
