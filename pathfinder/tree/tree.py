"""Prompts that share prefixes as one tree.

The stand-alone prompts' own id sequences are sorted and equal prefixes merged: a trie in depth-first order. Nothing is
assumed about where a tokenizer cuts. ``depth`` is the position id; node k is visible to node q exactly when
``k <= q < end[k]``. Label logits are read one token before the label's own place, as the published training does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pathfinder.models.tokens import Ids


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

    def above(self, node: int) -> npt.NDArray[np.bool_]:
        """(nodes,): the node and its ancestors, all that may be seen from right below it."""
        return (np.arange(len(self), dtype=np.int32) <= node) & (node < self.end)

    @cached_property
    def split(self) -> Split:
        """The whole tree as a trunk and its side branches."""
        return self.heavy(0, len(self))

    def heavy(self, start: int, stop: int) -> Split:
        """The nodes from ``start`` to ``stop`` as a trunk, which follows the largest subtree at every fork."""
        end = self.end[start:stop].tolist()
        trunk: list[int] = []
        side: list[tuple[int, int]] = []
        at = start
        while at < stop:
            children = [at]
            while (following := end[children[-1] - start]) < stop:
                children.append(following)
            heavy = max(children, key=lambda node: end[node - start] - node) if len(children) > 1 else at
            side += [(child, end[child - start]) for child in children if child != heavy]
            trunk.append(heavy)
            at, stop = heavy + 1, end[heavy - start]
        return Split(np.asarray(trunk, dtype=np.int64), side)


@dataclass(frozen=True, slots=True)
class Split:
    """A trunk (int64 node numbers) and its side branches, ``(first node, end)``, in the order in which they leave."""

    trunk: npt.NDArray[np.int64]
    branches: list[tuple[int, int]]


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
        shared = shared_prefix(before, prompt)
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


def shared_prefix(left: Ids, right: Ids) -> int:
    """How many tokens two sequences share from their starts on."""
    length = min(len(left), len(right))
    differ = np.flatnonzero(left[:length] != right[:length])
    return int(differ[0]) if len(differ) else length
