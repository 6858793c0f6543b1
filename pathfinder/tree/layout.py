"""Trees laid out for one forward pass: a row of real tokens, and a plan for the attention over it.

``batch_trees`` lays out whole trees. ``batch_onto`` leaves out what an earlier pass computed of their trunks, as rounds
of a search do. ``batch_below`` goes on below nodes of a batch that has just run: the second pass of the PRM.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from pathfinder.models.tokens import Ids
from pathfinder.tree.attention import Bin, BinPlan, FlexPlan, Part, Plan
from pathfinder.tree.inference import KVCache
from pathfinder.tree.tree import Split, Tree, shared_prefix

Backend = Literal["auto", "cascade", "dense", "flex"]
"""``dense``: a mask over every whole tree, the reference. ``auto``: flex where there is a GPU, else the cascade."""
_BIN = 96
"""Places of a bin of branches: short side branches share one, masked from each other (measured on one CPU core)."""
_LONG = 256
"""A side branch of more nodes than this is laid out as a tree of its own."""
_SHORT = 96
"""Up to this many nodes a tree is one bin."""
_GAP = 16
"""Hidden keys between visible ones that cost less than one more piece to join."""
_FULL = 1024
"""Tokens of a group worth a forward pass of its own rather than more padding."""
_SLACK = 15 / 16

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trunk:
    """What a model knows of a trunk: its ids and every layer's keys and values over them."""

    ids: Ids
    kept: KVCache


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """Several trees as one row of ``slots`` tokens for one forward pass."""

    input_ids: torch.Tensor
    """int64 (1, slots)"""
    position_ids: torch.Tensor
    """int64 (1, slots)"""
    reads: torch.Tensor
    """int64 (readings of all trees, tree after tree): the slots whose logits are wanted"""
    plan: Plan
    slots: tuple[_Numbers, ...]
    """Per tree the slot of each node, -1 for one that an earlier pass computed."""

    def to(self, device: torch.device | str, dtype: torch.dtype) -> TreeBatch:
        """The same on ``device``, masks in the model's ``dtype``."""
        return TreeBatch(
            self.input_ids.to(device),
            self.position_ids.to(device),
            self.reads.to(device),
            self.plan.to(device, dtype),
            self.slots,
        )


@dataclass(frozen=True, slots=True)
class Suffix:
    """Tokens ``ids`` that go on below ``node`` of the batch's tree number ``tree``, the first at position ``depth``.

    ``reads`` are the places in ``ids`` whose logits are wanted.
    """

    tree: int
    node: int
    ids: Ids
    depth: int
    reads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Sight:
    """``order`` and ``end`` of some slots (see ``attention``); int64 (slots,)."""

    order: _Numbers
    end: _Numbers

    def __getitem__(self, part: slice) -> _Sight:
        return _Sight(self.order[part], self.end[part])


@dataclass(frozen=True, slots=True)
class _Cut:
    """A bin to be: its slots' number, and where keys lie that they may see: in slabs (``~number``) and in the row."""

    size: int
    scope: tuple[Part, ...]


_ROW = 0
"""The source of a scope that lies in the row itself."""


def batch_trees(trees: Sequence[Tree], backend: Backend = "auto") -> TreeBatch:
    """Lay whole trees out."""
    return _lay(trees, [0] * len(trees), backend, ())


def batch_onto(trees: Sequence[Tree], trunks: Sequence[Trunk], backend: Backend = "auto") -> TreeBatch:
    """Lay trees out without the nodes that their ``trunks`` know (at the start of each tree's own trunk)."""
    known = [cached_nodes(tree, trunk.ids) for tree, trunk in zip(trees, trunks, strict=True)]
    return _lay(trees, known, backend, tuple(trunk.kept for trunk in trunks))


def batch_below(
    trees: Sequence[Tree],
    batch: TreeBatch,
    kept: KVCache,
    suffixes: Sequence[Suffix],
    trunks: Sequence[Trunk] = (),
    backend: Backend = "auto",
) -> TreeBatch:
    """Lay out what goes on below a batch that has run and left ``kept``; readings stand suffix after suffix.

    ``suffixes`` stand tree after tree. ``trunks`` are those that the batch was laid onto.
    """
    known = [int((slots < 0).sum()) for slots in batch.slots]
    row = _row_sight(trees, batch.slots)
    # Below node n there is room for as many orders as there are new slots: n's own order is n * stride.
    stride = 1 + sum(len(suffix.ids) for suffix in suffixes)
    before = [
        _Sight(one.order * stride, one.end * stride)
        for one in (row, *(_trunk_sights(trees, trunks, known) if trunks else ()))
    ]
    bases = np.cumsum([0, *(len(tree) for tree in trees)])
    starts = np.cumsum([0, *(int((slots >= 0).sum()) for slots in batch.slots)])
    order, end, positions, ids = [], [], [], []
    cuts: list[_Cut] = []
    reads: list[int] = []
    count, filled, last = 0, 0, -1
    for suffix in suffixes:
        size, tree = len(suffix.ids), suffix.tree
        first = (int(bases[tree]) + suffix.node) * stride + 1 + count
        order.append(np.arange(first, first + size))
        end.append(np.full(size, first + size))
        positions.append(np.arange(suffix.depth, suffix.depth + size))
        ids.append(suffix.ids)
        reads += [count + place for place in suffix.reads]
        if tree != last or filled + size > _BIN:
            past = (Part(~(1 + tree), 0, known[tree]),) if trunks else ()
            cuts.append(_Cut(0, (*past, Part(~0, int(starts[tree]), int(starts[tree + 1])))))
            filled, last = 0, tree
        filled, count = filled + size, count + size
        cuts[-1] = _Cut(filled, cuts[-1].scope)
    sight = _Sight(np.concatenate(order), np.concatenate(end))
    slabs = (kept, *(trunk.kept for trunk in trunks))
    return TreeBatch(_row(ids), _row(positions), torch.tensor(reads), _plan(backend, sight, cuts, before, slabs), ())


def cached_nodes(tree: Tree, ids: Ids) -> int:
    """How many of the trunk's first nodes an earlier pass over ``ids`` (a trunk too) leaves nothing to ask of."""
    shared = shared_prefix(tree.ids[tree.split.trunk], ids)
    read = np.flatnonzero(np.isin(tree.split.trunk[:shared], tree.reads))
    return int(read[0]) if len(read) else shared


def extend_trunks(trees: Sequence[Tree], trunks: Sequence[Trunk], batch: TreeBatch, kept: KVCache) -> list[Trunk]:
    """The trunks after a pass over ``batch_onto(trees, trunks)``: each tree's own, whole."""
    out = []
    for tree, trunk, slots in zip(trees, trunks, batch.slots, strict=True):
        nodes = tree.split.trunk
        known = cached_nodes(tree, trunk.ids)
        new = (
            slice(int(slots[nodes[known]]), int(slots[nodes[known]]) + len(nodes) - known)
            if len(nodes) > known
            else slice(0)
        )
        both = {
            layer: tuple(
                torch.cat([old[:, :known], fresh[:, new]], dim=1)
                for old, fresh in zip(trunk.kept[layer], kept[layer], strict=True)
            )
            for layer in kept
        }
        out.append(Trunk(tree.ids[nodes], {layer: (k, v) for layer, (k, v) in both.items()}))
    return out


def _lay(trees: Sequence[Tree], known: Sequence[int], backend: Backend, slabs: tuple[KVCache, ...]) -> TreeBatch:
    slots: list[_Numbers] = []
    cuts: list[_Cut] = []
    count = 0
    for number, (tree, nodes) in enumerate(zip(trees, known, strict=True)):
        start, mine = count, np.full(len(tree), -1, dtype=np.int64)
        filled = [start]
        for group, above in _groups(tree, nodes, whole=backend == "dense"):
            mine[group] = np.arange(count, count + len(group))
            past = (Part(~number, 0, nodes),) if nodes else ()
            cuts.append(_Cut(len(group), (*past, *(Part(_ROW, filled[at], filled[at + 1]) for at in above))))
            count += len(group)
            filled.append(count)
        slots.append(mine)
    sight = _row_sight(trees, slots)
    before = _trunk_sights(trees, slabs, known) if slabs else []
    ids, positions, reads = [], [], []
    for tree, mine in zip(trees, slots, strict=True):
        new = np.flatnonzero(mine >= 0)
        new = new[np.argsort(mine[new])]
        ids.append(tree.ids[new])
        positions.append(tree.depth[new])
        reads.append(mine[tree.reads])
    return TreeBatch(
        _row(ids),
        _row(positions),
        torch.from_numpy(np.concatenate(reads)),
        _plan(backend, sight, cuts, before, slabs),
        tuple(slots),
    )


def _groups(tree: Tree, known: int, whole: bool) -> Iterator[tuple[_Numbers, tuple[int, ...]]]:
    """The nodes of a tree bin by bin, without the trunk's first ``known``, and the bins that hold a bin's ancestors."""
    if (whole or len(tree) <= _SHORT) and not known:
        yield np.arange(len(tree), dtype=np.int64), ()
        return
    made = 0
    waiting: list[tuple[Split, int, tuple[int, ...]]] = [(tree.split, known, ())]
    while waiting:
        split, skip, above = waiting.pop()
        if skip < len(split.trunk):
            yield split.trunk[skip:], above
            above, made = (*above, made), made + 1
        group: list[_Numbers] = []
        filled = 0
        for start, stop in split.branches:
            if stop - start > _LONG:
                waiting.append((tree.heavy(start, stop), 0, above))
                continue
            if group and filled + stop - start > _BIN:
                yield np.concatenate(group), above
                group, filled, made = [], 0, made + 1
            group.append(np.arange(start, stop, dtype=np.int64))
            filled += stop - start
        if group:
            yield np.concatenate(group), above
            made += 1


def _row(parts: Sequence[npt.NDArray[np.integer]]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.int64))[None]


def _row_sight(trees: Sequence[Tree], slots: Sequence[_Numbers]) -> _Sight:
    """Orders of a row: node numbers, tree after tree."""
    order = np.empty(sum(int((mine >= 0).sum()) for mine in slots), dtype=np.int64)
    end = np.empty_like(order)
    base = 0
    for tree, mine in zip(trees, slots, strict=True):
        new = np.flatnonzero(mine >= 0)
        order[mine[new]] = base + new
        end[mine[new]] = base + tree.end[new]
        base += len(tree)
    return _Sight(order, end)


def _trunk_sights(trees: Sequence[Tree], slabs: Sequence[object], known: Sequence[int]) -> list[_Sight]:
    out, base = [], 0
    for tree, nodes, _ in zip(trees, known, slabs, strict=True):
        trunk = tree.split.trunk[:nodes]
        out.append(_Sight(base + trunk, base + tree.end[trunk].astype(np.int64)))
        base += len(tree)
    return out


def _plan(
    backend: Backend, row: _Sight, cuts: Sequence[_Cut], before: Sequence[_Sight], slabs: tuple[KVCache, ...]
) -> Plan:
    if backend == "flex" or (backend == "auto" and torch.cuda.is_available()):
        keys = (*before, row)
        return FlexPlan(
            torch.from_numpy(row.order),
            torch.from_numpy(np.concatenate([one.order for one in keys])),
            torch.from_numpy(np.concatenate([one.end for one in keys])),
            tuple(
                {layer: (k[:, : len(one.order)], v[:, : len(one.order)]) for layer, (k, v) in slab.items()}
                for one, slab in zip(before, slabs, strict=True)
            ),
        )
    starts = np.cumsum([0, *(cut.size for cut in cuts)]).tolist()
    bins = [_bin(starts, at, cut.scope, row, before) for at, cut in enumerate(cuts)]
    return BinPlan(tuple(bins), slabs)


def _bin(starts: Sequence[int], at: int, scope: Sequence[Part], row: _Sight, before: Sequence[_Sight]) -> Bin:
    """The bin of slots ``starts[at]`` to ``starts[at + 1]``: of its scope the keys that any slot sees, and its mask."""
    mine = row[starts[at] : starts[at + 1]]
    own = None if int(mine.end.min()) > int(mine.order.max()) else _visible(mine, mine)
    parts: list[Part] = []
    masks = []
    for source, start, stop in scope:
        seen = _visible(mine, (row if source == _ROW else before[~source])[start:stop])
        for low, high in _ranges(np.flatnonzero(seen.any(axis=0))):
            masks.append(seen[:, low:high])
            parts += (
                _pieces(starts, start + low, start + high)
                if source == _ROW
                else [Part(source, start + low, start + high)]
            )
    if own is None and not parts:
        return Bin(len(mine.order), len(mine.order))  # a chain that sees itself alone
    own = np.tri(len(mine.order), dtype=np.bool_) if own is None else own
    return Bin(len(mine.order), len(mine.order), tuple(parts), torch.from_numpy(np.concatenate([*masks, own], axis=1)))


def _visible(queries: _Sight, keys: _Sight) -> npt.NDArray[np.bool_]:
    """(queries, keys)"""
    q = queries.order[:, None]
    return (keys.order <= q) & (q < keys.end)


def _ranges(numbers: _Numbers) -> list[tuple[int, int]]:
    """Ascending numbers as ranges, over small gaps."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) > _GAP)
    lows, highs = numbers[np.r_[0, breaks + 1]], numbers[np.r_[breaks, len(numbers) - 1]] + 1
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def _pieces(starts: Sequence[int], low: int, high: int) -> list[Part]:
    """A range of the row's slots, bin by bin."""
    out = []
    while low < high:
        at = bisect_right(starts, low) - 1
        stop = min(high, starts[at + 1])
        out.append(Part(at, low - starts[at], stop - starts[at]))
        low = stop
    return out


def pack(sizes: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Groups of items of similar size (longest first), each within ``token_budget`` tokens when padded to its longest.

    A group that is large enough also ends where an item would be mostly padding. An item over the budget stands alone.
    The groups depend on the sizes and their order only.
    """
    group: list[int] = []
    for item in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        full = (len(group) + 1) * sizes[group[0]] > token_budget if group else False
        worth = len(group) * sizes[group[0]] >= _FULL and sizes[item] < _SLACK * sizes[group[0]] if group else False
        if full or worth:
            yield group
            group = []
        group.append(item)
    if group:
        yield group
