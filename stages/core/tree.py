"""Prompts that share prefixes as one tree, and trees as one forward pass.

The stand-alone prompts' own id sequences are sorted and equal prefixes merged: a trie in depth-first order. Nothing is
assumed about where a tokenizer cuts. ``depth`` is the position id; node k is visible to node q exactly when
``k <= q < end[k]``. Label logits are read one token before the label's own place, as the published training does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from stages.core.attention import CascadePlan, DensePlan, Past
from stages.core.tokens import Ids

Backend = Literal["auto", "cascade", "dense"]
_BIN = 64
"""Least slots of a bin of branches: short side branches are packed together, masked from each other."""
_ROUND = 8
_SHORT = 384
"""Up to this many nodes a dense mask costs less than the cascade's padding (measured on one CPU core)."""
_FULL = 1024
"""Tokens of a group worth a forward pass of its own rather than more padding."""
_SLACK = 15 / 16


@dataclass(frozen=True)
class Tree:
    """A trie of prompts. ``ids``, ``depth`` and ``end`` are int32 (nodes,); ``reads`` int32 (readings,)."""

    ids: Ids
    depth: Ids
    end: Ids
    reads: Ids
    """The node whose logits answer each reading, in the order in which the readings were asked for."""

    def __len__(self) -> int:
        return len(self.ids)

    def visible(self) -> npt.NDArray[np.bool_]:
        """(nodes, nodes): may the row's node attend to the column's?"""
        order = np.arange(len(self), dtype=np.int32)
        return (order[None, :] <= order[:, None]) & (order[:, None] < self.end[None, :])

    @cached_property
    def split(self) -> Split:
        """Trunk and side branches: the trunk follows the largest subtree at every fork."""
        end = self.end.tolist()
        trunk: list[int] = []
        starts: list[int] = []
        attached: list[int] = []
        start, stop = 0, len(end)
        while start < stop:
            children = [start]
            while (following := end[children[-1]]) < stop:
                children.append(following)
            heavy = max(children, key=lambda node: end[node] - node) if len(children) > 1 else start
            side = [child for child in children if child != heavy]
            starts += side
            attached += [len(trunk)] * len(side)
            trunk.append(heavy)
            start, stop = heavy + 1, end[heavy]
        order = sorted(range(len(starts)), key=starts.__getitem__)
        return Split(
            np.asarray(trunk, dtype=np.int64),
            [(starts[i], end[starts[i]], attached[i]) for i in order],
        )


@dataclass(frozen=True, slots=True)
class Split:
    """A tree's trunk (int64 node numbers) and its side branches: ``(first node, end, trunk nodes that it sees)``."""

    trunk: npt.NDArray[np.int64]
    branches: list[tuple[int, int, int]]


def build_tree(sequences: Sequence[Ids], reads: Sequence[tuple[int, int]]) -> Tree:
    """Merge the prompts' equal prefixes.

    ``reads`` are ``(sequence, position)`` pairs: the logits at that position of that stand-alone prompt. What stands
    after a prompt's last reading cannot change it and is left out.
    """
    wanted: dict[int, list[tuple[int, int]]] = {}
    for reading, (sequence, position) in enumerate(reads):
        if not 0 <= position < len(sequences[sequence]):
            raise IndexError(f"reading {reading} is at {position} of a prompt of {len(sequences[sequence])} tokens")
        wanted.setdefault(sequence, []).append((reading, position))
    cut = {index: sequences[index][: 1 + max(p for _, p in asked)] for index, asked in wanted.items()}
    order = sorted(cut, key=lambda index: cut[index].astype(">i4").tobytes())
    total = sum(len(ids) for ids in cut.values())
    ids, depth, end = (np.empty(total, dtype=np.int32) for _ in range(3))
    path = np.empty(max((len(s) for s in cut.values()), default=0), dtype=np.int32)
    nodes, before, found = 0, np.empty(0, dtype=np.int32), np.empty(len(reads), dtype=np.int32)
    for index in order:
        prompt = cut[index]
        shared = _common(before, prompt)
        if shared < len(prompt):
            end[path[shared : len(before)]] = nodes
            fresh = len(prompt) - shared
            ids[nodes : nodes + fresh] = prompt[shared:]
            depth[nodes : nodes + fresh] = np.arange(shared, len(prompt))
            path[shared : len(prompt)] = np.arange(nodes, nodes + fresh)
            nodes, before = nodes + fresh, prompt
        for reading, position in wanted[index]:
            found[reading] = path[position]
    end[path[: len(before)]] = nodes
    return Tree(ids[:nodes].copy(), depth[:nodes].copy(), end[:nodes].copy(), found)


def _common(left: Ids, right: Ids) -> int:
    length = min(len(left), len(right))
    differ = np.flatnonzero(left[:length] != right[:length])
    return int(differ[0]) if len(differ) else length


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

    def to(self, device: torch.device | str, dtype: torch.dtype) -> TreeBatch:
        """The same on ``device``, masks in the model's ``dtype``."""
        return TreeBatch(
            self.input_ids.to(device), self.position_ids.to(device), self.reads.to(device), self.plan.to(device, dtype)
        )


def known_nodes(tree: Tree, ids: Ids) -> int:
    """How many of the trunk's first nodes an earlier pass over ``ids`` (a trunk too) leaves nothing to ask of."""
    shared = _common(tree.ids[tree.split.trunk], ids)
    read = np.flatnonzero(np.isin(tree.split.trunk[:shared], tree.reads))
    return int(read[0]) if len(read) else shared


def batch_trees(trees: Sequence[Tree], backend: Backend = "auto") -> TreeBatch:
    """Lay trees out for one forward pass; no real slot sees padding."""
    dense = backend == "dense" or (backend == "auto" and max(len(tree) for tree in trees) <= _SHORT)
    return _batch(trees, *(_dense(trees) if dense else _cascade(trees, [0] * len(trees))))


def batch_onto(trees: Sequence[Tree], trunks: Sequence[Trunk]) -> TreeBatch:
    """Lay trees out without the nodes that their ``trunks`` know (at the start of each tree's own trunk)."""
    known = [known_nodes(tree, trunk.ids) for tree, trunk in zip(trees, trunks, strict=True)]
    places, slots, plan = _cascade(trees, known)
    before = _rounded(max(known))
    order = np.arange(plan.length)
    mask = np.zeros((len(trees), plan.length, before + plan.length), dtype=np.bool_)
    mask[:, :, :before] = (np.arange(before)[None, :] < np.asarray(known)[:, None])[:, None]
    mask[:, :, before:] = order[None, :] <= order[:, None]
    layers = range(max(len(trunk.keys) for trunk in trunks))
    keys = tuple(_stack([trunk.keys for trunk in trunks], layer, known, before) for layer in layers)
    values = tuple(_stack([trunk.values for trunk in trunks], layer, known, before) for layer in layers)
    past = Past(keys, values, torch.from_numpy(mask)[:, None])
    return _batch(trees, places, slots, replace(plan, past=past))


def _stack(parts: Sequence[Sequence[torch.Tensor]], layer: int, known: Sequence[int], length: int) -> torch.Tensor:
    """One layer's keys or values of every trunk, padded: (trunks, key heads, length, head size)."""
    heads, _, size = parts[0][layer].shape
    stacked = parts[0][layer].new_zeros(len(parts), heads, length, size)
    for row, (layers, nodes) in enumerate(zip(parts, known, strict=True)):
        stacked[row, :, :nodes] = layers[layer][:, :nodes]
    return stacked


def grown(trees: Sequence[Tree], trunks: Sequence[Trunk], batch: TreeBatch) -> list[Trunk]:
    """The trunks after a pass over ``batch_onto(trees, trunks)``: each tree's own, whole."""
    assert isinstance(batch.plan, CascadePlan) and batch.plan.past is not None  # noqa: PT018, S101
    fresh = batch.plan.past.fresh
    out = []
    for row, (tree, trunk) in enumerate(zip(trees, trunks, strict=True)):
        nodes = tree.split.trunk
        known = known_nodes(tree, trunk.ids)
        new = len(nodes) - known
        keys, values = (
            tuple(
                torch.cat([old[layer][:, :known], fresh[layer][part][row, :, :new]], dim=1) for layer in sorted(fresh)
            )
            for part, old in enumerate((trunk.keys, trunk.values))
        )
        out.append(Trunk(tree.ids[nodes], keys, values))
    return out


def _batch(
    trees: Sequence[Tree], places: list[npt.NDArray[np.int64]], slots: int, plan: CascadePlan | DensePlan
) -> TreeBatch:
    ids, positions = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.int64)
    for tree, place in zip(trees, places, strict=True):
        here = place >= 0
        ids[place[here]], positions[place[here]] = tree.ids[here], tree.depth[here]
    reads = np.concatenate([place[tree.reads] for tree, place in zip(trees, places, strict=True)])
    return TreeBatch(torch.from_numpy(ids)[None], torch.from_numpy(positions)[None], torch.from_numpy(reads), plan)


_Places = list[npt.NDArray[np.int64]]
"""Per tree the slot of each node, -1 for one that an earlier pass computed."""


def _dense(trees: Sequence[Tree]) -> tuple[_Places, int, DensePlan]:
    length = _rounded(max(len(tree) for tree in trees))
    mask = np.zeros((len(trees), length, length), dtype=np.bool_)
    mask[:] = np.eye(length, dtype=np.bool_)
    for row, tree in enumerate(trees):
        mask[row, : len(tree), : len(tree)] = tree.visible()
    places = [np.arange(len(tree)) + row * length for row, tree in enumerate(trees)]
    return places, len(trees) * length, DensePlan(torch.from_numpy(mask)[:, None])


def _cascade(trees: Sequence[Tree], known: Sequence[int]) -> tuple[_Places, int, CascadePlan]:
    before = _rounded(max(known))
    length = _rounded(max(len(tree.split.trunk) - nodes for tree, nodes in zip(trees, known, strict=True)))
    longest = max((stop - start for tree in trees for start, stop, _ in tree.split.branches), default=0)
    width = max(_BIN, _rounded(longest))
    owners: list[int] = []
    sees: list[npt.NDArray[np.int32]] = []  # per bin and slot: how many trunk nodes are visible
    ends: list[npt.NDArray[np.int32]] = []  # per bin and slot: the end of its subtree within the bin
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
    to_fresh = np.arange(length, dtype=np.int32) + behind < seen
    mask = torch.from_numpy(np.concatenate([to_known, to_fresh, own], axis=2))[:, None]
    slots = len(trees) * length + len(owners) * width
    return places, slots, CascadePlan(len(trees), length, width, torch.tensor(owners, dtype=torch.int64), mask)


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
