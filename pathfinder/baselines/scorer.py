"""A baseline as a scorer: solutions of one problem share a tree, trees are packed, one forward pass a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from pathfinder.baselines.adapter import Encoded, Method, Text
from pathfinder.baselines.backbone import Shards, load_backbone, longest
from pathfinder.core.io import DataError
from pathfinder.models.model import DTYPES, resolve
from pathfinder.models.tokens import open_tokenizer
from pathfinder.prm.scoring import Candidates, Solution, StepScore
from pathfinder.tree.layout import Backend, TreeBatch, batch_trees, pack
from pathfinder.tree.tree import build_tree

_CHUNK = 256
"""Solutions whose prompts are held at once."""


class BaselineScorer:
    """A model folder of somebody else's PRM, used in the way of ``method``."""

    def __init__(
        self,
        folder: Path,
        method: Method,
        dtype: str = "float32",
        token_budget: int = 16384,
        backend: Backend = "auto",
    ) -> None:
        self._path = resolve(folder)
        self._use(method)  # first: a folder of another system is refused before its weights are loaded
        self._model = load_backbone(self._path, dtype)
        self._dtype, self._budget, self._backend = DTYPES[dtype], token_budget, backend
        self._longest = longest(self._model.config)

    def using(self, method: Method) -> BaselineScorer:
        """The same model used in another way."""
        other = copy.copy(self)
        other._use(method)
        return other

    def _use(self, method: Method) -> None:
        self._adapter = method.adapter
        self._text = Text(open_tokenizer(self._path), *method.adapter.forbidden)
        self._head = method.adapter.head(self._text, Shards(self._path))

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """A reward in [0, 1] for every step of every solution; ``on_done`` hears how many more are finished.

        Raises ``DataError`` naming a solution that is longer than the model's context.
        """
        out: list[list[StepScore]] = [[] for _ in solutions]
        for chunk in self._chunks(solutions):
            encoded = {index: self._encode(solutions[index]) for group in chunk for index in group}
            groups = [part for group in chunk for part in self._parts(group, encoded)]
            trees = [
                build_tree(
                    [encoded[index].ids for index in group],
                    [(place, read) for place, index in enumerate(group) for read in encoded[index].reads],
                )
                for group in groups
            ]
            for batch in pack([len(tree) for tree in trees], self._budget):
                scores = iter(self._read(batch_trees([trees[item] for item in batch], self._backend)))
                for index in (index for item in batch for index in groups[item]):
                    out[index] = [StepScore(None, None, None, next(scores)) for _ in encoded[index].reads]
            if on_done is not None:
                on_done(len(encoded))
        return out

    def fits(self, solution: Solution) -> bool:
        """Is its prompt within the model's context?"""
        return len(self._adapter.encode(self._text, solution).ids) <= self._longest

    def _chunks(self, solutions: Sequence[Solution]) -> list[list[list[int]]]:
        """Solutions by problem, problems alike in length together."""
        by_problem: dict[str, list[int]] = {}
        for index, solution in enumerate(solutions):
            by_problem.setdefault(solution.problem, []).append(index)
        length = [len(s.problem) + sum(map(len, s.steps)) for s in solutions]
        chunks: list[list[list[int]]] = []
        held = _CHUNK
        for group in sorted(by_problem.values(), key=lambda group: (max(length[i] for i in group), group[0])):
            if held + len(group) > _CHUNK:
                chunks.append([])
                held = 0
            chunks[-1].append(group)
            held += len(group)
        return chunks

    def _encode(self, solution: Solution) -> Encoded:
        encoded = self._adapter.encode(self._text, solution)
        if len(encoded.ids) > self._longest:
            raise DataError(
                f"{solution.id}: the prompt has {len(encoded.ids)} tokens, over the model's {self._longest}; drop it"
            )
        return encoded

    def _parts(self, group: list[int], encoded: dict[int, Encoded]) -> list[list[int]]:
        """A group whose prompts have readings, cut where it would outgrow the token budget."""
        parts: list[list[int]] = []
        size = self._budget
        for index in (index for index in group if encoded[index].reads):
            if size + len(encoded[index].ids) > self._budget:
                parts.append([])
                size = 0
            parts[-1].append(index)
            size += len(encoded[index].ids)
        return parts

    @torch.inference_mode()
    def _read(self, batch: TreeBatch) -> list[float]:
        """Scores at the batch's readings."""
        batch = batch.to(self._model.device, self._dtype)
        hidden = self._model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=None,  # tree attention is not among those that transformers makes masks for
            use_cache=False,
            tree=batch.plan,
        ).last_hidden_state[0]
        read = hidden.index_select(0, batch.reads)
        found: list[float] = self._head(read if read.dtype == torch.float64 else read.float()).double().tolist()
        return found

    def rounds(self) -> BaselineRounds:
        """A search's scorer of candidates."""
        return BaselineRounds(self)


class BaselineRounds:
    """Candidates of a search's open problems; nothing is kept from round to round but the model."""

    def __init__(self, scorer: BaselineScorer) -> None:
        self._scorer = scorer

    def score(self, rounds: Mapping[str, Candidates]) -> dict[str, list[StepScore]]:
        """The last step's score of every candidate, all problems together: one problem's candidates share a tree.

        A candidate whose prompt is longer than the model's context is the worst there is (0): the search goes on.
        """
        asked = [
            Solution(f"{key}, candidate {number}", one.problem, (*one.prefix, step))
            for key, one in rounds.items()
            for number, step in enumerate(one.steps)
        ]
        fits = [self._scorer.fits(solution) for solution in asked]
        scored = iter(self._scorer.score([solution for solution, fit in zip(asked, fits, strict=True) if fit]))
        last = iter([next(scored)[-1] if fit else StepScore(None, None, None, 0.0) for fit in fits])
        return {key: [next(last) for _ in one.steps] for key, one in rounds.items()}
