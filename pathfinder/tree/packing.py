"""Forward passes: the items of each pass, and the division of an optimiser step's trees among processes.

These functions need only sizes, so ``pathfinder plan`` computes the cost of a step with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def split(sizes: Mapping[K, float], budget: float) -> list[list[K]]:
    """The keys in their order, in parts that fit into the budget; a larger key is a separate part."""
    parts: list[list[K]] = []
    filled = 0.0
    for key, size in sizes.items():
        if not parts or filled + size > budget:
            parts.append([])
            filled = 0.0
        parts[-1].append(key)
        filled += size
    return parts


def pack(sizes: Sequence[int], token_budget: int) -> list[list[int]]:
    """Group items, longest first, within ``token_budget`` tokens; an item over the budget is a separate group.

    The groups depend only on the sizes and their order.
    """
    return split({i: sizes[i] for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))}, token_budget)


def balance(sizes: Sequence[int], processes: int) -> list[list[int]]:
    """Distribute items over processes, the largest first to the least loaded process."""
    shares: list[list[int]] = [[] for _ in range(processes)]
    loads = [0] * processes
    for item in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        least = loads.index(min(loads))
        shares[least].append(item)
        loads[least] += sizes[item]
    return [sorted(share) for share in shares]


def passes_of(sizes: Sequence[int], processes: int, token_budget: int) -> list[list[list[int]]]:
    """Each process's forward passes over some trees; a pass is a list of items, and a process may have none.

    Several processes take their passes in step, because shards are gathered for every pass. So a turn takes the time of
    its largest pass. They therefore get as few turns as the budget allows, and each turn has passes of similar size. A
    tree over the budget is a separate pass.
    """
    if processes == 1:
        return [pack(sizes, token_budget)]
    for turns in itertools.count(1):
        passes = balance(sizes, processes * turns)
        loads = [sum(sizes[item] for item in items) for items in passes]
        if all(load <= token_budget or len(items) < 2 for load, items in zip(loads, passes, strict=True)):
            break
    largest_first = sorted(range(len(passes)), key=lambda number: (-loads[number], number))
    shares: list[list[list[int]]] = [[] for _ in range(processes)]
    for place, number in enumerate(largest_first):
        turn, at = divmod(place, processes)
        if passes[number]:  # the process with the largest pass of a turn gets the smallest pass of the next turn
            shares[at if turn % 2 == 0 else processes - 1 - at].append(passes[number])
    return shares


def used_share(sizes: Sequence[int], processes: int, token_budget: int) -> float:
    """The tokens of some trees, as a share of the tokens that the processes could compute in the same time."""
    shares = passes_of(sizes, processes, token_budget)
    turns = itertools.zip_longest(*shares, fillvalue=[])
    return sum(sizes) / (processes * sum(max(sum(sizes[i] for i in items) for items in turn) for turn in turns))
