"""PathFinder-PRM in this process: the labels and the reward of every step, many steps per forward pass.

Per step: P(``<+>``) of the first-pass labels, and P(``<+>``) at Correctness given the *predicted* first labels (paper
algorithm 1). Trees hold the common parts of prompts once: the system text, the problem, the earlier steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from ground.io import DataError
from pathfinder.core.steps import RoundScorer, Solution, StepScore
from pathfinder.models.decoder import KVCache, load_decoder
from pathfinder.models.folders import OpenedModel
from pathfinder.models.model import DTYPES, longest
from pathfinder.prm.steps import (
    WAVE,
    Stop,
    candidate_queries,
    chunks,
    open_prompter,
    queries_of,
    refuse_other_tokens,
    step_score,
)
from pathfinder.tree import layout
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.layout import Backend, TreeBatch, Trunk, cached_nodes
from pathfinder.tree.packing import pack, split
from pathfinder.tree.passes import Encoded, Mode, Place, Prompter, Query, passes_for
from pathfinder.tree.tree import Tree, build_tree, shared_prefix

_SHARED = 4096
"""Token budget of a tree that holds several solutions."""

K = TypeVar("K", bound=Hashable)


class Scorer:
    """A PRM, loaded into this process. Raises ``DataError`` for an unknown preset, dtype or variant."""

    def __init__(
        self,
        model: OpenedModel,
        preset: str = "default",
        dtype: str = "float32",
        token_budget: int = 16384,
        backend: Backend | None = None,
        mode: Mode = Mode.BOTH,
        where: str | None = None,
    ) -> None:
        prompter, network = open_prompter(model, preset), load_decoder(model, dtype, where)
        self._reader = TreeReader(prompter, network, DTYPES[dtype], backend, mode)
        self._budget, self.known = token_budget, model.known

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None, stop: Stop | None = None
    ) -> list[list[StepScore]]:
        """Score every step of every solution; ``on_done`` receives the number of newly finished solutions.

        With ``stop``, score a solution's steps up to and including the first for which it returns True, in growing
        waves that reuse the trunks of the wave before. A solution that is longer than the model's context has no
        scores. Raises ``DataError`` as ``refuse_other_tokens`` does.
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
        prompts = self._prompts(queries)
        yield len(queries) - len(prompts)
        # every step occurs twice: in a prefix and as current step
        longest = {index: 2 * max(len(ids) for ids, _ in mine) for index, mine in prompts.items()}
        parts = split(longest, min(self._budget, _SHARED))
        trees = [self._reader.tree([prompt for index in part for prompt in prompts[index]]) for part in parts]
        for batch in pack([len(tree.tree) for tree in trees], self._budget):
            for item, scores in zip(batch, self._reader.scores([trees[item] for item in batch]), strict=True):
                rest = iter(scores)
                for index in parts[item]:
                    out[index] = [next(rest) for _ in prompts[index]]
            yield sum(len(parts[item]) for item in batch)

    def _prompts(self, queries: Mapping[int, list[Query]]) -> dict[int, list[Encoded]]:
        """The prompts of whole solutions, without solutions that have a prompt longer than the model's context."""
        some = {index: mine for index, mine in queries.items() if mine}
        # the last prompt is the longest, and all prompts of a long solution take long
        lasts = zip(some, self._reader.encode([mine[-1] for mine in some.values()]), strict=True)
        fitting = {index: last for index, last in lasts if last is not None}
        others = iter(self._reader.encode([query for index in fitting for query in some[index][:-1]]))
        found = {index: [*islice(others, len(some[index]) - 1), last] for index, last in fitting.items()}
        whole = {index: [prompt for prompt in prompts if prompt is not None] for index, prompts in found.items()}
        return {index: prompts for index, prompts in whole.items() if len(prompts) == len(some[index])}

    def _waves(self, queries: dict[int, list[Query]], out: list[list[StepScore]], stop: Stop) -> Iterator[int]:
        """Like ``_whole``, up to where ``stop`` ends each solution; yield the number that each wave finishes."""
        trunks: dict[int, Trunk] = {}
        size = WAVE
        waiting = len(queries)
        fitting = self._prompts({index: mine[-1:] for index, mine in queries.items()})
        queries = {index: queries[index] for index in fitting}
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
        """Score the steps of a solution in parts of about ``seconds``; each part reuses the trunk of the parts before.

        Yields nothing for a solution that is longer than the model's context. Raises ``DataError`` as ``score`` does.
        """
        queries = queries_of(solution)
        if not self._prompts({0: queries[-1:]}):  # the longest prompt
            return
        trunks: dict[int, Trunk] = {}
        out: list[StepScore] = []
        size = WAVE
        while queries:
            start = time.monotonic()
            found = [score for score in self._score_onto(trunks, {0: queries[:size]})[0] if score is not None]
            out += found
            refuse_other_tokens(self._reader.prompter, [solution], [out])
            took = time.monotonic() - start  # without the wait until the caller asks for the next part
            yield found
            queries = queries[size:]
            size = max(1, min(2 * size, int(size * seconds / took)))

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search: each round reuses the trunks of the round before.

        A round computes only its own candidates and the last step. A problem that is missing from a round is forgotten.
        """
        trunks: dict[str, Trunk] = {}
        return lambda rounds: self._score_onto(trunks, candidate_queries(rounds))

    @torch.inference_mode()
    def _score_onto(self, trunks: dict[K, Trunk], groups: Mapping[K, list[Query]]) -> dict[K, list[StepScore | None]]:
        """Scores of every group's queries; None for a query that is longer than the model's context.

        ``trunks`` holds the known trunks; the trunks of these groups replace them.
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


@dataclass(frozen=True, slots=True)
class PromptTree:
    """Prompts that share one tree, and the places that the tree answers."""

    prompts: Sequence[Encoded]
    tree: Tree
    places: list[Place]
    found: dict[Place, npt.NDArray[np.float64]] = field(default_factory=dict)
    """A row of ``TreeReader._log_probabilities`` for each place."""


class TreeReader:
    """Reads the step scores of queries from batches of trees, one forward pass per batch and pass of the PRM.

    The second pass continues below the branches of the first pass and reuses its keys and values.
    """

    def __init__(self, prompter: Prompter, model: Any, dtype: torch.dtype, backend: Backend | None, mode: Mode) -> None:
        use_trees(model)
        self.prompter = prompter
        self._model, self._dtype, self._mode = model, dtype, mode
        self._backend = backend or layout.backend_on(model.device)
        # In mode "both", the second pass runs below the first. Other modes and sequential labels share one tree.
        passes = prompter.passes
        self._has_second = mode is Mode.BOTH and len(passes) == 2
        self._first = passes_for(mode, passes)[:1] if self._has_second else passes_for(mode, passes)
        self._longest = longest(model.config)

    def encode(self, queries: list[Query]) -> list[Encoded | None]:
        """The queries' prompts; None for one that is longer than the model's context."""
        encoded = self.prompter.encode(queries)
        return [(ids, slots) if slots[-1] <= self._longest else None for ids, slots in encoded]

    def tree(self, prompts: Sequence[Encoded]) -> PromptTree:
        """One tree of the prompts."""
        given = (True,) if self._mode is Mode.POSITIVE else (True, False)
        return PromptTree(prompts, *self.prompter.tree_of(prompts, self._first, given=given))

    @cached_property
    def opening(self) -> Trunk:
        """The system text that starts every prompt: the trunk of a problem that is new."""
        one, other = (self.prompter.encode([Query("", text, (), text)])[0][0] for text in "PQ")
        ids = one[: shared_prefix(one, other)]
        tree = build_tree([ids], [(0, len(ids) - 1)])  # one chain, so its slots are in the order of its tokens
        cache: KVCache = {}
        self._log_probabilities(layout.batch_trees([tree], self._backend), cache)
        return Trunk(ids, cache)

    @torch.inference_mode()
    def scores(self, trees: Sequence[PromptTree], trunks: list[Trunk] | None = None) -> list[list[StepScore]]:
        """Scores of every tree's queries, from one batch per pass.

        ``trunks`` holds the parts of each tree that earlier batches computed; this batch's trunks replace them.
        """
        plain = [tree.tree for tree in trees]
        if trunks is None:
            batch = layout.batch_trees(plain, self._backend)
        else:
            batch = layout.batch_onto(plain, trunks, self._backend)
        cache: KVCache = {}
        rows = iter(self._log_probabilities(batch, cache if self._has_second or trunks is not None else None))
        for tree in trees:
            tree.found.update((place, next(rows)) for place in tree.places)
        if self._has_second:
            self._second_pass(trees, batch, cache, trunks or ())
        if trunks is not None:
            trunks[:] = layout.extend_trunks(plain, trunks, batch, cache)
        return [
            [step_score(self.prompter, i, tree.found, self._mode) for i in range(len(tree.prompts))] for tree in trees
        ]

    def _second_pass(
        self, trees: Sequence[PromptTree], batch: TreeBatch, cache: KVCache, trunks: Sequence[Trunk]
    ) -> None:
        """Read the second pass given the predicted labels, below the nodes where its prompts leave the first pass."""
        first, second = self.prompter.passes
        suffixes: list[layout.Suffix] = []
        wanted: list[tuple[PromptTree, Place]] = []
        for index, tree in enumerate(trees):
            reads = zip(tree.places, tree.tree.reads, strict=True)
            node_of = {place.query: int(node) for place, node in reads if place.mark == first.asked[0]}
            for number, (ids, slots) in enumerate(tree.prompts):
                labels = (tree.found[Place(number, (), mark)] for mark in first.asked)
                given = tuple(good >= bad for good, bad, _ in labels)
                tail = self.prompter.prompt(ids, slots, given, second.asked)[slots[0] :]
                places = tuple(slots[mark] - 1 - slots[0] for mark in second.asked)
                suffixes.append(layout.Suffix(index, node_of[number], tail, slots[0], places))
                wanted += [(tree, Place(number, given, mark)) for mark in second.asked]
        below = layout.batch_below([tree.tree for tree in trees], batch, cache, suffixes, trunks, self._backend)
        for (tree, place), row in zip(wanted, self._log_probabilities(below), strict=True):
            tree.found[place] = row

    def _log_probabilities(self, batch: TreeBatch, cache: KVCache | None = None) -> npt.NDArray[np.float64]:
        """float64 (places, 3): log-probabilities of ``<+>``, ``<->`` and the likeliest token of the vocabulary."""
        logits = read_logits(self._model, batch.to(self._model.device, self._dtype), cache)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        ids = self.prompter.ids
        three = torch.stack((logits[:, ids.good], logits[:, ids.bad], logits.max(dim=-1).values), dim=-1)
        three = three - logits.logsumexp(dim=-1, keepdim=True)
        rows = three.double().cpu().numpy()
        if np.isnan(rows).any():
            raise DataError("the model's output is not a number; its weights are broken, or overflow in this dtype")
        return rows
