"""The PRM as a scorer: probabilities of every step's labels and its reward, whole solutions in one forward pass.

Per step: P(``<+>``) of the first-pass labels, and P(``<+>``) at Correctness given the *predicted* first labels (paper
algorithm 1): the second pass goes on below the first one's branches, on keys and values that are there already.
``Rounds`` keeps what the model computed of each problem's trunk from one round of candidates to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pathfinder.core.io import DataError
from pathfinder.models.description import variant_of
from pathfinder.models.model import DTYPES, load_model, resolve
from pathfinder.models.tokens import load_tokenizer
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.inference import KVCache
from pathfinder.tree.layout import (
    Backend,
    Suffix,
    TreeBatch,
    Trunk,
    batch_below,
    batch_onto,
    batch_trees,
    cached_nodes,
    extend_trunks,
    pack,
)
from pathfinder.tree.passes import PRESETS, Encoded, Mode, Prompter, Query, Reading, expected_reward, passes_for
from pathfinder.tree.tree import Tree, build_tree, shared_prefix

_CHUNK = 256
"""Solutions whose prompts are held at once."""
_SHARED = 4096
"""Tokens of a tree that holds several solutions: all share the system text, those of one problem more."""
OPEN = 64
"""Solutions whose trunks are kept at once where scoring stops early."""
WAVE = 2
"""Steps of a solution's first wave where scoring stops early; each wave is twice as long."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A problem and the steps of one solution."""

    id: str
    problem: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Steps that might come next after ``prefix``."""

    problem: str
    prefix: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepScore:
    """Probabilities of ``<+>``; None where the variant has no such label. Mode ``pass1`` leaves the reward NaN."""

    math: float | None
    consistency: float | None
    error_free: float | None
    reward: float

    @property
    def labels(self) -> dict[str, bool]:
        """The first-pass labels (empty for a variant without subtasks)."""
        stated = {"math": self.math, "consistency": self.consistency, "error_free": self.error_free}
        return {name: p >= 0.5 for name, p in stated.items() if p is not None}

    @property
    def has_error(self) -> bool:
        """Is any first-pass label negative? Without subtasks: is the reward below one half?"""
        return not all(self.labels.values()) if self.labels else self.reward < 0.5


FoundAt = tuple[int, tuple[bool, ...], int]
"""Query, labels given, mark."""
_Found = dict[FoundAt, npt.NDArray[np.float64]]
"""Log-probabilities, see ``Scorer._log_probabilities``."""


@dataclass(frozen=True, slots=True)
class _Asked:
    queries: list[Query]
    encoded: list[Encoded]
    tree: Tree
    readings: list[Reading]


class Scorer:
    """A PRM folder (``pathfinder.json`` names its variant), loaded and switched to trees."""

    def __init__(
        self,
        folder: Path,
        preset: str = "default",
        dtype: str = "float32",
        token_budget: int = 16384,
        backend: Backend = "auto",
        mode: Mode = Mode.BOTH,
    ) -> None:
        if preset not in PRESETS:
            raise DataError(f"unknown preset {preset!r}; expected one of {', '.join(PRESETS)}")
        path = resolve(folder)
        self.variant = variant_of(path)
        self._prompter = Prompter(load_tokenizer(path), self.variant, PRESETS[preset])
        self._model = load_model(path, dtype)
        use_trees(self._model)
        self._dtype, self._budget, self._backend = DTYPES[dtype], token_budget, backend
        # Two passes: the second goes on below the first. Every other mode, and labels one by one: all in one tree.
        passes, self._mode = self._prompter.passes, mode
        self._later = mode is Mode.BOTH and len(passes) == 2
        self._together = passes_for(mode, passes)[:1] if self._later else passes_for(mode, passes)
        self._longest = int(getattr(self._model.config, "max_position_embeddings", 2**31))

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """Scores of every step of every solution; ``on_done`` hears how many more solutions are finished.

        Raises ``DataError`` naming a solution that is longer than the model's context.
        """
        out: list[list[StepScore]] = [[] for _ in solutions]
        queries = {index: queries_of(solution) for index, solution in enumerate(solutions)}
        chunks = _chunks(solutions)
        for chunk in chunks:
            asked, members = [], []
            encoded = {index: self._encode(queries[index]) for index in chunk if queries[index]}
            for part in _parts(encoded, min(self._budget, _SHARED)):
                members.append(part)
                asked.append(
                    self._ask(
                        [query for index in part for query in queries[index]],
                        [one for index in part for one in encoded[index]],
                    )
                )
            for batch in pack([len(one.tree) for one in asked], self._budget):
                for item, scores in zip(batch, self._answer([asked[item] for item in batch]), strict=True):
                    rest = iter(scores)
                    for index in members[item]:
                        out[index] = [next(rest) for _ in queries[index]]
                if on_done is not None:
                    on_done(sum(len(members[item]) for item in batch))
            if on_done is not None:
                on_done(sum(not queries[index] for index in chunk))
        return out

    def score_until(
        self,
        solutions: Sequence[Solution],
        stop: Callable[[int, int, StepScore], bool],
        on_done: Callable[[int], None] | None = None,
    ) -> list[list[StepScore]]:
        """Scores of the steps of every solution up to the first one that ``stop`` holds for, that one included.

        ``stop`` is asked with the solution's number, the step's place and its score. Steps are scored in waves over
        kept trunks; after each, solutions that stopped are out.
        """
        out: list[list[StepScore]] = [[] for _ in solutions]
        for chunk in _chunks(solutions, OPEN):
            trunks: dict[str, Trunk] = {}
            waiting = {str(index): queries_of(solutions[index]) for index in chunk}
            size = WAVE
            while waiting:
                open_now = {key: rest[:size] for key, rest in waiting.items()}
                before = len(waiting)
                for key, scores in self._onto(trunks, open_now).items():
                    number, mine = int(key), out[int(key)]
                    waiting[key] = waiting[key][size:]
                    for score in scores:
                        mine.append(score)
                        if stop(number, len(mine) - 1, score):
                            waiting[key] = []
                            break
                waiting = {key: rest for key, rest in waiting.items() if rest}
                size *= 2
                if on_done is not None:
                    on_done(before - len(waiting))
        return out

    @torch.inference_mode()
    def _onto(self, trunks: dict[str, Trunk], groups: dict[str, list[Query]]) -> dict[str, list[StepScore]]:
        """Scores of every group's queries; ``trunks`` is what is known, and afterwards what these groups left."""
        made = {key: self._ask(queries, self._encode(queries)) for key, queries in groups.items() if queries}
        keys = list(made)
        before = {key: trunks.get(key) or self._opening for key in keys}
        trunks.clear()
        out: dict[str, list[StepScore]] = {key: [] for key in groups}
        for chosen in pack([len(made[k].tree) - cached_nodes(made[k].tree, before[k].ids) for k in keys], self._budget):
            names = [keys[item] for item in chosen]
            onto = [before[name] for name in names]
            out |= zip(names, self._answer([made[name] for name in names], onto), strict=True)
            trunks |= zip(names, onto, strict=True)
        return out

    @cached_property
    def _opening(self) -> Trunk:
        """What every prompt begins with, the system text: the trunk of a problem of which nothing else is known."""
        one, other = (self._prompter.encode([Query("", text, (), text)])[0][0] for text in "PQ")
        ids = one[: shared_prefix(one, other)]
        config: Any = self._model.config
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        nothing = torch.empty(config.num_key_value_heads, 0, size, device=self._model.device, dtype=self._dtype)
        empty = Trunk(ids[:0], dict.fromkeys(range(config.num_hidden_layers), (nothing, nothing)))
        tree = build_tree([ids], [(0, len(ids) - 1)])
        batch = batch_onto([tree], [empty], self._backend).to(self._model.device, self._dtype)
        kept: KVCache = {}
        read_logits(self._model, batch, kept)
        return extend_trunks([tree], [empty], batch, kept)[0]

    def _encode(self, queries: list[Query]) -> list[Encoded]:
        """Raises ``DataError`` naming the first query that is longer than the model's context."""
        encoded = self._prompter.encode(queries)
        for query, (_, slots) in zip(queries, encoded, strict=True):
            if slots[-1] > self._longest:
                raise DataError(
                    f"{query.name}: the prompt has over {self._longest} tokens, the model's context; leave it out"
                )
        return encoded

    def _ask(self, queries: list[Query], encoded: list[Encoded]) -> _Asked:
        given = (True,) if self._mode is Mode.POSITIVE else (True, False)
        return _Asked(queries, encoded, *self._prompter.tree_of(encoded, self._together, given=given))

    @torch.inference_mode()
    def _answer(self, asked: Sequence[_Asked], trunks: list[Trunk] | None = None) -> list[list[StepScore]]:
        """Both passes over a group; ``trunks`` are taken as known and replaced by what is known afterwards."""
        trees = [one.tree for one in asked]
        kept: KVCache | None = {} if self._later or trunks is not None else None
        batch = batch_trees(trees, self._backend) if trunks is None else batch_onto(trees, trunks, self._backend)
        batch = batch.to(self._model.device, self._dtype)
        logits = self._log_probabilities(batch, kept)
        found: list[_Found] = []
        for one in asked:
            mine, logits = logits[: len(one.readings)], logits[len(one.readings) :]
            found.append({(r.query, r.given, r.mark): row for r, row in zip(one.readings, mine, strict=True)})
        if self._later and kept is not None:
            self._second_pass(asked, found, batch, kept, trunks or ())
        if trunks is not None and kept is not None:
            trunks[:] = extend_trunks(trees, trunks, batch, kept)
        return [
            [
                step_score(self._prompter, query.name, number, answers, self._mode)
                for number, query in enumerate(one.queries)
            ]
            for one, answers in zip(asked, found, strict=True)
        ]

    def _second_pass(
        self, asked: Sequence[_Asked], found: list[_Found], batch: TreeBatch, kept: KVCache, trunks: Sequence[Trunk]
    ) -> None:
        """Read the later pass given the predicted labels, below the nodes where its prompts leave the first one's."""
        (first, later), places = self._prompter.passes, [one.tree.reads for one in asked]
        suffixes: list[Suffix] = []
        wanted: list[tuple[int, int, tuple[bool, ...]]] = []
        for index, one in enumerate(asked):
            node_of = {
                r.query: int(n) for r, n in zip(one.readings, places[index], strict=True) if r.mark == first.asked[0]
            }
            for number, (ids, slots) in enumerate(one.encoded):
                given = tuple(good >= bad for good, bad, _ in (found[index][number, (), m] for m in first.asked))
                tail = self._prompter.prompt(ids, slots, given, later.asked)[slots[0] :]
                reads = tuple(slots[mark] - 1 - slots[0] for mark in later.asked)
                suffixes.append(Suffix(index, node_of[number], tail, slots[0], reads))
                wanted.append((index, number, given))
        below = batch_below([one.tree for one in asked], batch, kept, suffixes, trunks, self._backend)
        logits = self._log_probabilities(below.to(self._model.device, self._dtype))
        rows = iter(logits)
        for index, number, given in wanted:
            for mark in later.asked:
                found[index][number, given, mark] = next(rows)

    def _log_probabilities(self, batch: TreeBatch, kept: KVCache | None = None) -> npt.NDArray[np.float64]:
        """Per reading: log-probabilities (whole vocabulary) of ``<+>`` and ``<->``, and of the most likely token."""
        logits = read_logits(self._model, batch, kept)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        ids = self._prompter.ids
        two = torch.stack((logits[:, ids.good], logits[:, ids.bad], logits.max(dim=-1).values), dim=-1)
        two = two - logits.logsumexp(dim=-1, keepdim=True)
        return two.double().cpu().numpy()

    def rounds(self) -> Rounds:
        """A search's scorer of candidates over this model."""
        return Rounds(self)


class Rounds:
    """Rounds of a search over trunks that stay: a problem's candidates cost their own tokens and the last step's."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._trunks: dict[str, Trunk] = {}

    def score(self, rounds: Mapping[str, Candidates]) -> dict[str, list[StepScore]]:
        """Scores of the candidates of every open problem, all problems together; a key that is left out is done.

        Keys name the problems from round to round. What is known of a trunk counts only as far as its tokens agree, so
        any order of calls is right, and the usual one cheap.
        """
        groups = {
            key: [Query(f"{key}, candidate {i}", c.problem, c.prefix, step) for i, step in enumerate(c.steps)]
            for key, c in rounds.items()
        }
        return self._scorer._onto(self._trunks, groups)


def step_score(
    prompter: Prompter,
    name: str,
    number: int,
    found: Mapping[FoundAt, Iterable[float]],
    mode: Mode = Mode.BOTH,
) -> StepScore:
    """The score of query ``number`` from log-probabilities of ``<+>``, ``<->`` and the likeliest token at its marks.

    Raises ``DataError`` naming ``name`` where the preset refuses another likeliest token.
    """
    preset, labels = prompter.preset, prompter.labels

    def positive(given: tuple[bool, ...], mark: int) -> float:
        good, bad, _ = (float(value) for value in found[number, given, mark])
        return float(np.exp(good)) if preset.full_softmax else 1 / (1 + float(np.exp(bad - good)))

    predicted: list[bool] = []
    stated: dict[str, float] = {}
    for step in passes_for(mode, prompter.passes):
        given = tuple(mode is Mode.POSITIVE or label for label in predicted[: len(step.given)])
        for mark in step.asked:
            good, bad, top = (float(value) for value in found[number, given, mark])
            if preset.strict and not step.given and top > max(good, bad):
                raise DataError(f"{name}: the most likely token at {labels[mark]} is neither <+> nor <->")
            predicted.append(good >= bad)
            stated[labels[mark]] = positive(given, mark)
    if mode is Mode.ALL:
        stated["correctness"] = expected_reward(prompter.passes, positive)
    return StepScore(
        stated.get("math"), stated.get("consistency"), stated.get("error_free"), stated.get("correctness", math.nan)
    )


def queries_of(solution: Solution) -> list[Query]:
    """A solution's steps, each with those before it."""
    steps = solution.steps
    return [Query(f"{solution.id}, step {t}", solution.problem, steps[:t], step) for t, step in enumerate(steps)]


def _chunks(solutions: Sequence[Solution], size: int = _CHUNK) -> list[list[int]]:
    """Solutions of a problem together, problems alike in length together, about ``size`` solutions at a time."""
    by_problem: dict[str, list[int]] = {}
    for index, solution in enumerate(solutions):
        by_problem.setdefault(solution.problem, []).append(index)
    length = [len(one.problem) + sum(map(len, one.steps)) for one in solutions]
    chunks: list[list[int]] = [[]]
    for group in sorted(by_problem.values(), key=lambda group: (max(length[i] for i in group), group[0])):
        if len(chunks[-1]) + len(group) > size:
            chunks.append([])
        chunks[-1] += group
    return chunks


def _parts(encoded: Mapping[int, list[Encoded]], budget: int) -> list[list[int]]:
    """Solutions by trees: as many in one, in their order, as surely stay within the budget."""
    parts: list[list[int]] = []
    size = budget
    for index, prompts in encoded.items():
        longest = 2 * max(len(ids) for ids, _ in prompts)  # every step stands twice: as prefix and as current step
        if size + longest > budget:
            parts.append([])
            size = 0
        parts[-1].append(index)
        size += longest
    return parts
