"""The sizes of training trees (``trees.yaml``), and how evenly processes can share the trees of a step."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ground.settings import read_yaml
from pathfinder.tree.packing import used_share

_FILE = Path(__file__).with_name("trees.yaml")
_DRAWN = 4000
"""Trees: at least 40 optimiser steps of the profiles."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees by size, each as records, tokens and its weight among the trees of a training set."""

    sizes: tuple[tuple[float, int, float], ...]

    @property
    def tokens_per_record(self) -> float:
        """The mean number of tokens per record in trees of whole solutions."""
        tokens = sum(tokens * weight for _, tokens, weight in self.sizes)
        return tokens / sum(records * weight for records, _, weight in self.sizes)


@cache
def trees_of_mix(human: int, monte_carlo: int, apart: bool = False) -> Trees:
    """The trees of a mix with so many records of each kind; with ``apart``, each published sample is a tree."""
    groups, sizes = read_yaml(_FILE), list[tuple[float, int, float]]()
    names = ("human_samples", "monte_carlo_samples") if apart else ("human", "monte_carlo")
    for kind, total in zip(names, (human, monte_carlo), strict=True):
        each = sum(records for records, _ in groups[kind])
        sizes += [(records, tokens, total / each) for records, tokens in groups[kind]]
    return Trees(tuple(sizes))


@cache
def busy_share(trees: Trees, batch_records: float, processes: int, token_budget: int) -> float:
    """The share of the processes' time in which they compute trees and do not wait, over seeded optimiser steps."""
    drawn = random.Random(0)
    busy, spent, step, filled = 0, 0.0, list[int](), 0.0
    for records, tokens, _ in drawn.choices(trees.sizes, [weight for *_, weight in trees.sizes], k=_DRAWN):
        if step and filled + records > batch_records:
            busy += sum(step)
            spent += sum(step) / used_share(step, processes, token_budget)
            step, filled = [], 0.0
        step.append(tokens)
        filled += records
    return busy / spent if spent else used_share(step, processes, token_budget)
