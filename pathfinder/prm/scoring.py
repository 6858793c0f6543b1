"""PathFinder-PRM in this process: the labels and the reward of every step, many steps per forward pass.

Per step: P(``<+>``) of the first-pass labels, and P(``<+>``) at Correctness given the *predicted* first labels (paper
algorithm 1). Trees of prompts share what the prompts share: the system text, the problem, the earlier steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from pathfinder.core.steps import RoundScorer, Solution, StepScore
from pathfinder.models.folders import resolve
from pathfinder.models.model import DTYPES, load_model
from pathfinder.prm.chunks import chunks, split
from pathfinder.prm.readings import WAVE, Stop, candidate_queries, open_prompter, queries_of, refuse_other_tokens
from pathfinder.prm.tree_reader import Prompt, TreeReader
from pathfinder.tree.layout import Backend, Trunk, cached_nodes
from pathfinder.tree.packing import pack
from pathfinder.tree.passes import Mode, Query

_SHARED = 4096
"""Token budget of a tree that holds several solutions."""

K = TypeVar("K", bound=Hashable)


class Scorer:
    """A PRM folder, loaded into this process. Raises ``DataError`` for an unknown preset, dtype or variant."""

    def __init__(
        self,
        folder: Path,
        preset: str = "default",
        dtype: str = "float32",
        token_budget: int = 16384,
        backend: Backend | None = None,
        mode: Mode = Mode.BOTH,
        where: str | None = None,
    ) -> None:
        prompter, model = open_prompter(folder, preset), load_model(resolve(folder), dtype, where=where)
        self._reader = TreeReader(prompter, model, DTYPES[dtype], backend, mode)
        self._budget = token_budget

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None, stop: Stop | None = None
    ) -> list[list[StepScore]]:
        """Score every step of every solution; ``on_done`` receives how many more solutions are finished.

        With ``stop``, score the steps of a solution up to and including the first one that it holds for, in waves that
        grow and reuse the trunks of the wave before. A solution that is longer than the model's context has no scores.
        Raises ``DataError`` as ``refuse_other_tokens`` does.
        """
        out: list[list[StepScore]] = [[] for _ in solutions]
        for chunk in chunks(solutions, stops=stop is not None):
            queries = {index: queries_of(solutions[index]) for index in chunk}
            for count in self._whole(queries, out) if stop is None else self._waves(queries, out, stop):
                if on_done is not None:
                    on_done(count)
        refuse_other_tokens(self._reader.prompter, solutions, out)
        return out

    def _whole(self, queries: Mapping[int, list[Query]], out: list[list[StepScore]]) -> Iterator[int]:
        """Fill ``out`` at the keys of ``queries``; yield the number of solutions that each batch finishes."""
        prompts = {index: mine for index in queries if (mine := self._prompts(queries[index]))}
        yield len(queries) - len(prompts)
        # every step occurs twice: in a prefix and as current step
        longest = {index: 2 * max(len(ids) for _, (ids, _) in mine) for index, mine in prompts.items()}
        parts = split(longest, min(self._budget, _SHARED))
        trees = [self._reader.tree([prompt for index in part for prompt in prompts[index]]) for part in parts]
        for batch in pack([len(tree.tree) for tree in trees], self._budget):
            for item, scores in zip(batch, self._reader.scores([trees[item] for item in batch]), strict=True):
                rest = iter(scores)
                for index in parts[item]:
                    out[index] = [next(rest) for _ in prompts[index]]
            yield sum(len(parts[item]) for item in batch)

    def _prompts(self, queries: list[Query]) -> list[Prompt]:
        """The prompts of a whole solution; none if one of them is longer than the model's context."""
        prompts = self._reader.encode(queries) if queries else []
        fitting = [prompt for prompt in prompts if prompt is not None]
        return fitting if len(fitting) == len(prompts) else []

    def _waves(self, queries: dict[int, list[Query]], out: list[list[StepScore]], stop: Stop) -> Iterator[int]:
        """Like ``_whole``, up to where ``stop`` ends each solution; yield the number that each wave finishes."""
        trunks: dict[int, Trunk] = {}
        size = WAVE
        waiting = len(queries)
        queries = {index: mine for index, mine in queries.items() if self._prompts(mine[-1:])}  # the longest prompt
        yield waiting - len(queries)
        while queries:
            for index, scores in self._score_onto(trunks, {i: rest[:size] for i, rest in queries.items()}).items():
                queries[index] = queries[index][size:]
                for score in scores:
                    if score is None:
                        out[index], queries[index] = [], []
                        break
                    out[index].append(score)
                    if stop(index, score):
                        queries[index] = []
                        break
            size *= 2
            yield sum(not rest for rest in queries.values())
            queries = {index: rest for index, rest in queries.items() if rest}

    def parts(self, solution: Solution, seconds: float) -> Iterator[list[StepScore]]:
        """Score the steps of a solution in parts of about ``seconds``; each part reuses the trunk of those before.

        Yields nothing for a solution that is longer than the model's context. Raises ``DataError`` as ``score`` does.
        """
        queries = queries_of(solution)
        if not self._prompts(queries[-1:]):  # the longest prompt
            return
        trunks: dict[int, Trunk] = {}
        out: list[StepScore] = []
        size = WAVE
        while queries:
            start = time.monotonic()
            found = [score for score in self._score_onto(trunks, {0: queries[:size]})[0] if score is not None]
            out += found
            refuse_other_tokens(self._reader.prompter, [solution], [out])
            yield found
            queries = queries[size:]
            size = max(1, min(2 * size, int(size * seconds / (time.monotonic() - start))))

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search: each round reuses the trunks of the round before.

        A round costs its own candidates and the last step. A problem that is missing from a round is forgotten.
        """
        trunks: dict[str, Trunk] = {}
        return lambda rounds: self._score_onto(trunks, candidate_queries(rounds))

    @torch.inference_mode()
    def _score_onto(self, trunks: dict[K, Trunk], groups: Mapping[K, list[Query]]) -> dict[K, list[StepScore | None]]:
        """Scores of every group's queries; None for a query that is longer than the model's context.

        ``trunks`` holds the known trunks; those of these groups replace them.
        """
        prompts = {key: self._reader.encode(mine) for key, mine in groups.items()}
        fitting = {key: [prompt for prompt in mine if prompt is not None] for key, mine in prompts.items()}
        trees = {key: self._reader.tree(mine) for key, mine in fitting.items() if mine}
        keys = list(trees)
        before = {key: trunks.get(key) or self._reader.opening for key in keys}
        trunks.clear()
        found: dict[K, list[StepScore]] = {key: [] for key in groups}
        sizes = [len(tree.tree) - cached_nodes(tree.tree, before[key].ids) for key, tree in trees.items()]
        for batch in pack(sizes, self._budget):
            chosen = [keys[item] for item in batch]
            onto = [before[key] for key in chosen]
            found |= zip(chosen, self._reader.scores([trees[key] for key in chosen], onto), strict=True)
            trunks |= zip(chosen, onto, strict=True)
        scores = {key: iter(mine) for key, mine in found.items()}
        return {
            key: [None if prompt is None else next(scores[key]) for prompt in mine] for key, mine in prompts.items()
        }
