"""Trees packed in rows of equal length, which many models read at once."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pathfinder.core.steps import Solution
from pathfinder.prm.steps import queries_of
from pathfinder.tree.passes import Place, Prompter
from pathfinder.tree.tree import Tree

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """Trees packed in rows of equal length; int64 (..., rows, length). Slots without a token see only themselves."""

    ids: Tensor
    depth: Tensor
    end: Tensor
    """The end of each slot's subtree within its row."""

    def __getitem__(self, key: Any) -> Rows:
        return Rows(self.ids[key], self.depth[key], self.end[key])

    def to(self, device: torch.device | str) -> Rows:
        """The rows on a device."""
        return Rows(self.ids.to(device), self.depth.to(device), self.end.to(device))

    def visible(self) -> Tensor:
        """True if a slot (second last dimension) sees a slot (last one): bool (..., rows, length, length)."""
        at = torch.arange(self.ids.shape[-1], device=self.ids.device)
        return (at[None, :] <= at[:, None]) & (at[:, None] < self.end[..., None, :])


def length_of(trees: Sequence[Tree]) -> int:
    """The length of rows for the trees, a multiple of 16, which suits the kernels of attention."""
    return -(-max(len(tree) for tree in trees) // 16) * 16


def place(sizes: Sequence[int], length: int) -> tuple[Numbers, int]:
    """The first slot of each tree in rows of ``length`` slots, int64 (trees,), and the number of rows.

    The largest tree comes first, and each goes to the row with the least room that suffices.
    """
    free: list[tuple[int, int]] = []
    starts = np.zeros(len(sizes), dtype=np.int64)
    rows = 0
    for item in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        fits = bisect_left(free, (sizes[item], -1))
        if fits < len(free):
            room, row = free.pop(fits)
        else:
            room, row, rows = length, rows, rows + 1
        starts[item] = row * length + length - room
        insort(free, (room - sizes[item], row))
    return starts, rows


def fill(trees: Sequence[Tree], starts: Numbers, rows: int, length: int) -> npt.NDArray[np.int64]:
    """``ids``, ``depth`` and ``end`` of the rows: int64 (3, rows, length)."""
    flat = np.zeros((3, rows * length), dtype=np.int64)
    flat[2] = np.arange(rows * length) % length + 1
    for tree, start in zip(trees, starts.tolist(), strict=True):
        flat[:, start : start + len(tree)] = tree.ids, tree.depth, tree.end + start % length
    return flat.reshape(3, rows, length)


@dataclass(frozen=True)
class Exam:
    """The trees of prompts of some solutions with every combination of labels, and their places in order."""

    rows: Rows
    reads: Numbers
    places: tuple[tuple[Place, ...], ...]
    """For each solution; ``Place.query`` is the number of the step."""

    @classmethod
    def of(cls, prompter: Prompter, solutions: Sequence[Solution]) -> Exam:
        """The exam of some solutions."""
        encoded = iter(prompter.encode([query for solution in solutions for query in queries_of(solution)]))
        made = [prompter.tree_of([next(encoded) for _ in s.steps], prompter.passes) for s in solutions]
        return cls.of_trees([tree for tree, _ in made], [tuple(places) for _, places in made])

    @classmethod
    def of_trees(cls, trees: Sequence[Tree], places: Sequence[tuple[Place, ...]]) -> Exam:
        """The exam of some trees, with their places if they are needed."""
        length = length_of(trees)
        starts, count = place([len(tree) for tree in trees], length)
        rows = Rows(*(torch.from_numpy(part) for part in fill(trees, starts, count, length)))
        reads = np.concatenate([tree.reads + start for tree, start in zip(trees, starts.tolist(), strict=True)])
        return cls(rows, reads, tuple(places))
