"""Trees laid out for one forward pass: a row of real tokens, and a plan for the attention over it.

``batch_trees`` lays out whole trees. ``batch_onto`` leaves out what an earlier pass computed of their trunks, as rounds
of a search do. ``batch_below`` goes on below nodes of a batch that has just run: the second pass of the PRM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from stages.core.attention import CascadePlan, DensePlan, Kept, Past, Places
from stages.core.tokens import Ids
from stages.core.tree import Tree, common

Backend = Literal["auto", "cascade", "dense"]
_BIN = 64
"""Least places of a bin of branches: short side branches are packed together, masked from each other."""
_ROUND = 8
_SHORT = 384
"""Up to this many nodes a dense mask costs less than the cascade's padding (measured on one CPU core)."""
_FULL = 1024
"""Tokens of a group worth a forward pass of its own rather than more padding."""
_SLACK = 15 / 16

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Trunk:
    """What a model knows of a trunk: its ids and, per layer, keys and values (key heads, nodes, head size)."""

    ids: Ids
    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """Several trees as one row of ``slots`` tokens for one forward pass."""

    input_ids: torch.Tensor
    """int64 (1, slots)"""
    position_ids: torch.Tensor
    """int64 (1, slots)"""
    reads: torch.Tensor
    """int64 (readings of all trees, tree after tree): the slots whose logits are wanted"""
    plan: CascadePlan | DensePlan
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


def batch_trees(trees: Sequence[Tree], backend: Backend = "auto") -> TreeBatch:
    """Lay whole trees out."""
    slots = _slots(trees, [0] * len(trees))
    if backend == "dense" or (backend == "auto" and max(len(tree) for tree in trees) <= _SHORT):
        return _batch(trees, slots, _dense(trees))
    return _batch(trees, slots, _cascade(trees, slots, [0] * len(trees)))


def batch_onto(trees: Sequence[Tree], trunks: Sequence[Trunk]) -> TreeBatch:
    """Lay trees out without the nodes that their ``trunks`` know (at the start of each tree's own trunk)."""
    known = [known_nodes(tree, trunk.ids) for tree, trunk in zip(trees, trunks, strict=True)]
    slots = _slots(trees, known)
    return _batch(trees, slots, _cascade(trees, slots, known, _past(trunks, known)))


def batch_below(
    trees: Sequence[Tree], batch: TreeBatch, kept: Kept, suffixes: Sequence[Suffix], trunks: Sequence[Trunk] = ()
) -> TreeBatch:
    """Lay out what goes on below a batch that has run and left ``kept``; readings stand suffix after suffix.

    ``trunks`` are those that the batch was laid onto.
    """
    nothing = np.empty(0, dtype=np.int32)
    known = [int((slots < 0).sum()) for slots in batch.slots]
    mine: dict[int, list[int]] = {}
    for number, suffix in enumerate(suffixes):
        mine.setdefault(suffix.tree, []).append(number)
    rows = sorted(mine)
    length = _rounded(max(sum(len(suffixes[number].ids) for number in own) for own in mine.values()))
    before = _rounded(max(known[row] for row in rows))
    width = max(len(trees[row]) - known[row] for row in rows)
    mask = np.zeros((len(rows), length, before + width + length), dtype=np.bool_)
    take = np.zeros((len(rows), length), dtype=np.int64)
    source = np.zeros((len(rows), width), dtype=np.int64)
    ids, positions, back = [nothing], [nothing], [nothing.astype(np.int64)]
    starts = [0] * len(suffixes)
    count = 0
    for at, row in enumerate(rows):
        tree, slots = trees[row], batch.slots[row]
        new = np.flatnonzero(slots >= 0)
        source[at, : len(new)] = slots[new]
        mask[at, :, before + width :] = np.eye(length, dtype=np.bool_)
        filled = 0
        for number in mine[row]:
            suffix = suffixes[number]
            here = slice(filled, filled + len(suffix.ids))
            seen = tree.above(suffix.node)
            mask[at, here, : known[row]] = seen[tree.split.trunk[: known[row]]]
            mask[at, here, before : before + len(new)] = seen[new]
            own = slice(before + width + here.start, before + width + here.stop)
            mask[at, here, own] = np.tri(len(suffix.ids), dtype=np.bool_)
            take[at, here] = np.arange(count, count + len(suffix.ids))
            back.append(np.arange(here.start, here.stop) + at * length)
            ids.append(suffix.ids)
            positions.append(np.arange(suffix.depth, suffix.depth + len(suffix.ids), dtype=np.int32))
            starts[number] = count
            count, filled = count + len(suffix.ids), here.stop
    reads = [start + place for start, suffix in zip(starts, suffixes, strict=True) for place in suffix.reads]
    past = _memory(kept, torch.from_numpy(source), [trunks[row] for row in rows] if trunks else [], known, rows)
    places = Places(torch.from_numpy(take.reshape(-1)), torch.from_numpy(np.concatenate(back)))
    return TreeBatch(
        torch.from_numpy(np.concatenate(ids).astype(np.int64))[None],
        torch.from_numpy(np.concatenate(positions).astype(np.int64))[None],
        torch.tensor(reads, dtype=torch.int64),
        DensePlan(places, torch.from_numpy(mask)[:, None], past),
        (),
    )


def known_nodes(tree: Tree, ids: Ids) -> int:
    """How many of the trunk's first nodes an earlier pass over ``ids`` (a trunk too) leaves nothing to ask of."""
    shared = common(tree.ids[tree.split.trunk], ids)
    read = np.flatnonzero(np.isin(tree.split.trunk[:shared], tree.reads))
    return int(read[0]) if len(read) else shared


def grown(trees: Sequence[Tree], trunks: Sequence[Trunk], batch: TreeBatch, kept: Kept) -> list[Trunk]:
    """The trunks after a pass over ``batch_onto(trees, trunks)``: each tree's own, whole."""
    out = []
    for tree, trunk, slots in zip(trees, trunks, batch.slots, strict=True):
        nodes = tree.split.trunk
        known = known_nodes(tree, trunk.ids)
        new = torch.from_numpy(slots[nodes[known:]]).to(batch.reads.device)
        keys, values = (
            tuple(
                torch.cat([old[layer][:, :known], kept[layer][part].index_select(1, new)], dim=1)
                for layer in sorted(kept)
            )
            for part, old in enumerate((trunk.keys, trunk.values))
        )
        out.append(Trunk(tree.ids[nodes], keys, values))
    return out


def _slots(trees: Sequence[Tree], known: Sequence[int]) -> list[_Numbers]:
    """Per tree the slot of each node: the new ones in their order, tree after tree."""
    out, count = [], 0
    for tree, nodes in zip(trees, known, strict=True):
        new = np.ones(len(tree), dtype=np.bool_)
        new[tree.split.trunk[:nodes]] = False
        slots = np.full(len(tree), -1, dtype=np.int64)
        slots[new] = np.arange(count, count + int(new.sum()))
        out.append(slots)
        count += int(new.sum())
    return out


def _batch(trees: Sequence[Tree], slots: Sequence[_Numbers], plan: CascadePlan | DensePlan) -> TreeBatch:
    ids = np.concatenate([tree.ids[mine >= 0] for tree, mine in zip(trees, slots, strict=True)])
    positions = np.concatenate([tree.depth[mine >= 0] for tree, mine in zip(trees, slots, strict=True)])
    reads = np.concatenate([mine[tree.reads] for tree, mine in zip(trees, slots, strict=True)])
    return TreeBatch(
        torch.from_numpy(ids.astype(np.int64))[None],
        torch.from_numpy(positions.astype(np.int64))[None],
        torch.from_numpy(reads),
        plan,
        tuple(slots),
    )


def _places(slots: Sequence[_Numbers], places: Sequence[_Numbers], size: int) -> Places:
    """``places`` per tree: where each node lies in the padded rows, in step with ``slots``."""
    take = np.zeros(size, dtype=np.int64)
    back = np.empty(sum(int((mine >= 0).sum()) for mine in slots), dtype=np.int64)
    for mine, place in zip(slots, places, strict=True):
        here = mine >= 0
        take[place[here]] = mine[here]
        back[mine[here]] = place[here]
    return Places(torch.from_numpy(take), torch.from_numpy(back))


def _dense(trees: Sequence[Tree]) -> DensePlan:
    length = _rounded(max(len(tree) for tree in trees))
    mask = np.zeros((len(trees), length, length), dtype=np.bool_)
    mask[:] = np.eye(length, dtype=np.bool_)
    for row, tree in enumerate(trees):
        mask[row, : len(tree), : len(tree)] = tree.visible()
    places = [np.arange(len(tree)) + row * length for row, tree in enumerate(trees)]
    where = _places(_slots(trees, [0] * len(trees)), places, len(trees) * length)
    return DensePlan(where, torch.from_numpy(mask)[:, None])


def _cascade(
    trees: Sequence[Tree], slots: Sequence[_Numbers], known: Sequence[int], past: Past | None = None
) -> CascadePlan:
    before = _rounded(max(known))
    length = _rounded(max(len(tree.split.trunk) - nodes for tree, nodes in zip(trees, known, strict=True)))
    longest = max((stop - start for tree in trees for start, stop, _ in tree.split.branches), default=0)
    width = max(_BIN, _rounded(longest))
    owners: list[int] = []
    sees: list[npt.NDArray[np.int32]] = []  # per bin and place: how many trunk nodes are visible
    ends: list[npt.NDArray[np.int32]] = []  # per bin and place: the end of its subtree within the bin
    places = []
    for row, (tree, nodes) in enumerate(zip(trees, known, strict=True)):
        place = np.full(len(tree), -1, dtype=np.int64)
        place[tree.split.trunk[nodes:]] = np.arange(len(tree.split.trunk) - nodes) + row * length
        filled = width
        for start, stop, attached in tree.split.branches:
            if filled + stop - start > width:
                owners.append(row)
                sees.append(np.zeros(width, dtype=np.int32))
                ends.append(np.arange(1, width + 1, dtype=np.int32))
                filled = 0
            here = slice(filled, filled + stop - start)
            sees[-1][here] = attached
            ends[-1][here] = tree.end[start:stop] - start + filled
            place[start:stop] = np.arange(here.start, here.stop) + len(trees) * length + (len(owners) - 1) * width
            filled = here.stop
        places.append(place)
    seen = np.asarray(sees, dtype=np.int32).reshape(-1, width)[:, :, None]
    stop_at = np.asarray(ends, dtype=np.int32).reshape(-1, width)
    order = np.arange(width, dtype=np.int32)
    own = (order[None, None, :] <= order[None, :, None]) & (order[None, :, None] < stop_at[:, None, :])
    behind = np.asarray([known[owner] for owner in owners], dtype=np.int32)[:, None, None]
    to_known = np.arange(before, dtype=np.int32) < np.minimum(seen, behind)
    to_new = np.arange(length, dtype=np.int32) + behind < seen
    mask = torch.from_numpy(np.concatenate([to_known, to_new, own], axis=2))[:, None]
    return CascadePlan(
        _places(slots, places, len(trees) * length + len(owners) * width),
        len(trees),
        length,
        width,
        torch.tensor(owners, dtype=torch.int64),
        mask,
        past,
        None if before == 0 else torch.from_numpy(_trunk_mask(known, before, length))[:, None],
    )


def _trunk_mask(known: Sequence[int], before: int, length: int) -> _Mask:
    mask = np.zeros((len(known), length, before + length), dtype=np.bool_)
    mask[:, :, :before] = (np.arange(before)[None, :] < np.asarray(known)[:, None])[:, None]
    mask[:, :, before:] = np.tri(length, dtype=np.bool_)
    return mask


def _past(trunks: Sequence[Trunk], known: Sequence[int]) -> Past | None:
    """The first ``known`` nodes of every trunk, padded; None where that is nothing."""
    before = _rounded(max(known))
    if before == 0:
        return None
    keys, values = (
        tuple(_stack([part[layer] for part in parts], known, before) for layer in range(len(parts[0])))
        for parts in ([trunk.keys for trunk in trunks], [trunk.values for trunk in trunks])
    )
    return Past(keys, values)


def _stack(parts: Sequence[torch.Tensor], known: Sequence[int], length: int) -> torch.Tensor:
    heads, _, size = parts[0].shape
    stacked = parts[0].new_zeros(len(parts), heads, length, size)
    for row, (part, nodes) in enumerate(zip(parts, known, strict=True)):
        stacked[row, :, :nodes] = part[:, :nodes]
    return stacked


def _memory(
    kept: Kept, source: torch.Tensor, trunks: Sequence[Trunk], known: Sequence[int], rows: Sequence[int]
) -> Past:
    """Keys and values of whole trees: of their trunks from earlier passes, then of the batch that has just run."""
    device = kept[0][0].device
    flat = source.reshape(-1).to(device)

    def new(part: torch.Tensor) -> torch.Tensor:
        return part.index_select(1, flat).view(len(part), *source.shape, part.shape[-1]).transpose(0, 1)

    layers = sorted(kept)
    past = Past(tuple(new(kept[layer][0]) for layer in layers), tuple(new(kept[layer][1]) for layer in layers))
    earlier = _past(trunks, [known[row] for row in rows]) if trunks else None
    if earlier is None:
        return past
    both = [earlier.before(past.keys[layer], past.values[layer], layer) for layer in layers]
    return Past(tuple(keys for keys, _ in both), tuple(values for _, values in both))


def _rounded(length: int) -> int:
    return -(-length // _ROUND) * _ROUND


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
