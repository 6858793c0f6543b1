"""Prompts that share prefixes, merged into one tree.

The prompts' token ids are sorted and equal prefixes are merged, whatever the token boundaries are. The package's
docstring states which nodes a node sees. The logits of a label are read one token before the label, as in the published
training.
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
    """A trie of prompts. ``ids``, ``depth`` and ``end`` are int32 (nodes,); ``reads`` is int32 (readings,)."""

    ids: Ids
    depth: Ids
    end: Ids
    reads: Ids
    """The node whose logits answer each reading, in the order in which the readings were requested."""

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def split(self) -> Split:
        """The heavy path of the whole tree."""
        return self.heavy_path(0, len(self))

    def heavy_path(self, start: int, stop: int) -> Split:
        """Split nodes ``start`` to ``stop``: the trunk follows the largest subtree at every fork."""
        end = self.end[start:stop].tolist()
        trunk: list[int] = []
        branches: list[tuple[int, int]] = []
        at = start
        while at < stop:
            children = [at]
            while (following := end[children[-1] - start]) < stop:
                children.append(following)
            heavy = max(children, key=lambda node: end[node - start] - node) if len(children) > 1 else at
            branches += [(child, end[child - start]) for child in children if child != heavy]
            trunk.append(heavy)
            at, stop = heavy + 1, end[heavy - start]
        return Split(np.asarray(trunk, dtype=np.int64), branches)


@dataclass(frozen=True, slots=True)
class Split:
    """A trunk, int64 (nodes,), and its side branches as ``(first node, end)`` from the root to the tip of the trunk."""

    trunk: npt.NDArray[np.int64]
    branches: list[tuple[int, int]]


def build_tree(sequences: Sequence[Ids], reads: Sequence[tuple[int, int]]) -> Tree:
    """Merge the equal prefixes of prompts, each int32 (tokens,).

    ``reads`` are ``(sequence, position)`` pairs: positions whose logits are wanted. Tokens after the last reading of a
    prompt cannot change it and are dropped. Raises ``IndexError`` for a position outside its prompt.
    """
    wanted: dict[int, list[tuple[int, int]]] = {}
    for reading, (sequence, position) in enumerate(reads):
        if not 0 <= position < len(sequences[sequence]):
            raise IndexError(f"reading {reading} is at {position} of a prompt of {len(sequences[sequence])} tokens")
        wanted.setdefault(sequence, []).append((reading, position))
    prompts = {index: sequences[index][: 1 + max(p for _, p in pairs)] for index, pairs in wanted.items()}
    total = sum(len(ids) for ids in prompts.values())
    ids, depth, end = (np.empty(total, dtype=np.int32) for _ in range(3))
    path = np.empty(max((len(s) for s in prompts.values()), default=0), dtype=np.int32)
    nodes, previous, found = 0, np.empty(0, dtype=np.int32), np.empty(len(reads), dtype=np.int32)
    for index in sorted(prompts, key=lambda index: prompts[index].astype(">i4").tobytes()):
        prompt = prompts[index]
        shared = shared_prefix(previous, prompt)
        if shared < len(prompt):
            end[path[shared : len(previous)]] = nodes
            new = len(prompt) - shared
            ids[nodes : nodes + new] = prompt[shared:]
            depth[nodes : nodes + new] = np.arange(shared, len(prompt))
            path[shared : len(prompt)] = np.arange(nodes, nodes + new)
            nodes, previous = nodes + new, prompt
        for reading, position in wanted[index]:
            found[reading] = path[position]
    end[path[: len(previous)]] = nodes
    return Tree(ids[:nodes].copy(), depth[:nodes].copy(), end[:nodes].copy(), found)


def shared_prefix(left: Ids, right: Ids) -> int:
    """The length of the longest common prefix of two sequences."""
    length = min(len(left), len(right))
    differ = np.flatnonzero(left[:length] != right[:length])
    return int(differ[0]) if len(differ) else length
