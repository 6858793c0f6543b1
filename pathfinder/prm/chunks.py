"""The chunks of solutions that are scored apart from each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pathfinder.core.steps import Solution

_CHUNK = 256
"""Solutions whose prompts are held at once."""
OPEN = 64
"""Solutions whose trunks are kept at once when scoring stops early."""


def chunks(solutions: Sequence[Solution], stops: bool = False) -> list[list[int]]:
    """Indices in the chunks that are scored apart from each other, smaller ones if scoring ``stops`` early.

    One problem's solutions are together, and problems of similar length. A chunk alone is cut into no further chunks.
    """
    by_problem: dict[str, list[int]] = {}
    for index, solution in enumerate(solutions):
        by_problem.setdefault(solution.problem, []).append(index)
    length = [len(solution.problem) + sum(map(len, solution.steps)) for solution in solutions]
    groups = sorted(by_problem.values(), key=lambda group: (max(length[i] for i in group), group[0]))
    parts = split({place: len(group) for place, group in enumerate(groups)}, OPEN if stops else _CHUNK)
    return [[index for place in part for index in groups[place]] for part in parts]


def split(sizes: Mapping[int, int], budget: int) -> list[list[int]]:
    """The keys in their order, in as few parts as surely fit into the budget; a larger key is a part of its own."""
    parts: list[list[int]] = []
    free = 0
    for key, size in sizes.items():
        if not parts or size > free:
            parts.append([])
            free = budget
        parts[-1].append(key)
        free -= size
    return parts
