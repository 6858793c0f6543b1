"""PathFinder-PRM in this process: the labels and the reward of every step, many steps per forward pass.

Per step: P(``<+>``) of the first-pass labels, and P(``<+>``) at Correctness given the *predicted* first labels (paper
algorithm 1). Trees of prompts share what the prompts share: the system text, the problem, the earlier steps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from pathfinder.models.model import DTYPES, load_model, resolve
from pathfinder.prm.readings import WAVE, candidate_queries, open_prompter, queries_of
from pathfinder.prm.steps import RoundScorer, Solution, StepScore
from pathfinder.prm.tree_reader import TreeReader
from pathfinder.tree.layout import Backend, Trunk, cached_nodes, pack
from pathfinder.tree.passes import Encoded, Mode, Query

_CHUNK = 256
"""Solutions whose prompts are held at once."""
_SHARED = 4096
"""Token budget of a tree that holds several solutions."""
OPEN = 64
"""Solutions whose trunks are kept at once when scoring stops early."""

K = TypeVar("K", bound=Hashable)


class Scorer:
    """A PRM folder, loaded into this process. Raises ``DataError`` for an unknown preset, dtype or variant."""

    def __init__(
        self,
        folder: Path,
        preset: str = "default",
        dtype: str = "float32",
        token_budget: int = 16384,
        backend: Backend = "auto",
        mode: Mode = Mode.BOTH,
    ) -> None:
        prompter, model = open_prompter(folder, preset), load_model(resolve(folder), dtype)
        self._reader = TreeReader(prompter, model, DTYPES[dtype], backend, mode)
        self._budget = token_budget

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """Score every step of every solution; ``on_done`` receives how many more solutions are finished.

        Raises ``DataError`` naming a solution that is longer than the model's context.
        """
        out: list[list[StepScore]] = [[] for _ in solutions]
        for chunk in chunks(solutions):
            queries = {index: queries_of(solutions[index]) for index in chunk}
            encoded = {index: self._reader.encode(mine) for index, mine in queries.items() if mine}
            parts = _parts(encoded, min(self._budget, _SHARED))
            trees = [
                self._reader.tree(
                    [query for index in part for query in queries[index]],
                    [prompt for index in part for prompt in encoded[index]],
                )
                for part in parts
            ]
            for batch in pack([len(tree) for tree in trees], self._budget):
                for item, scores in zip(batch, self._reader.scores([trees[item] for item in batch]), strict=True):
                    rest = iter(scores)
                    for index in parts[item]:
                        out[index] = [next(rest) for _ in queries[index]]
                if on_done is not None:
                    on_done(sum(len(parts[item]) for item in batch))
            if on_done is not None:
                on_done(len(queries) - len(encoded))
        return out

    def score_until(
        self,
        solutions: Sequence[Solution],
        stop: Callable[[int, int, StepScore], bool],
        on_done: Callable[[int], None] | None = None,
    ) -> list[list[StepScore]]:
        """Score the steps of every solution up to and including the first one that ``stop`` holds for.

        ``stop`` receives the solution's number, the step's number and its score. Steps are scored in waves that grow;
        each wave reuses the trunks of the one before.
        """
        out: list[list[StepScore]] = [[] for _ in solutions]
        for chunk in chunks(solutions, OPEN):
            trunks: dict[int, Trunk] = {}
            waiting = {index: queries_of(solutions[index]) for index in chunk}
            size = WAVE
            while waiting:
                before = len(waiting)
                scored = self._score_onto(trunks, {index: rest[:size] for index, rest in waiting.items()})
                for index, scores in scored.items():
                    waiting[index] = waiting[index][size:]
                    for score in scores:
                        out[index].append(score)
                        if stop(index, len(out[index]) - 1, score):
                            waiting[index] = []
                            break
                waiting = {index: rest for index, rest in waiting.items() if rest}
                size *= 2
                if on_done is not None:
                    on_done(before - len(waiting))
        return out

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search: each round reuses the trunks of the round before.

        A round costs its own candidates and the last step. A problem that is missing from a round is forgotten.
        """
        trunks: dict[str, Trunk] = {}
        return lambda rounds: self._score_onto(trunks, candidate_queries(rounds))

    @torch.inference_mode()
    def _score_onto(self, trunks: dict[K, Trunk], groups: Mapping[K, list[Query]]) -> dict[K, list[StepScore]]:
        """Scores of every group's queries. ``trunks`` holds the known trunks; those of these groups replace them."""
        trees = {key: self._reader.tree(mine, self._reader.encode(mine)) for key, mine in groups.items() if mine}
        keys = list(trees)
        before = {key: trunks.get(key) or self._reader.opening for key in keys}
        trunks.clear()
        out: dict[K, list[StepScore]] = {key: [] for key in groups}
        sizes = [len(trees[key]) - cached_nodes(trees[key].tree, before[key].ids) for key in keys]
        for batch in pack(sizes, self._budget):
            chosen = [keys[item] for item in batch]
            onto = [before[key] for key in chosen]
            out |= zip(chosen, self._reader.scores([trees[key] for key in chosen], onto), strict=True)
            trunks |= zip(chosen, onto, strict=True)
        return out


def chunks(solutions: Sequence[Solution], size: int = _CHUNK) -> list[list[int]]:
    """Indices in chunks of about ``size``: one problem's solutions together, problems of similar length together."""
    by_problem: dict[str, list[int]] = {}
    for index, solution in enumerate(solutions):
        by_problem.setdefault(solution.problem, []).append(index)
    length = [len(solution.problem) + sum(map(len, solution.steps)) for solution in solutions]
    found: list[list[int]] = []
    for group in sorted(by_problem.values(), key=lambda group: (max(length[i] for i in group), group[0])):
        if not found or len(found[-1]) + len(group) > size:
            found.append([])
        found[-1] += group
    return found


def _parts(encoded: Mapping[int, list[Encoded]], budget: int) -> list[list[int]]:
    """Solutions per tree, in their order: as many as surely fit into the budget."""
    parts: list[list[int]] = []
    size = budget
    for index, prompts in encoded.items():
        longest = 2 * max(len(ids) for ids, _ in prompts)  # every step occurs twice: in a prefix and as current step
        if size + longest > budget:
            parts.append([])
            size = 0
        parts[-1].append(index)
        size += longest
    return parts
