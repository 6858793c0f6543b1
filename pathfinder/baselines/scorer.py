"""Score steps with a published PRM: one tree per problem, packed trees, one forward pass per batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import torch

from pathfinder.baselines.adapter import Method, Text
from pathfinder.baselines.backbone import TOKENIZER, Shards, load_backbone
from pathfinder.core.steps import Candidates, RoundScorer, Solution, StepScore
from pathfinder.models.folders import OpenedModel
from pathfinder.models.model import DTYPES, longest
from pathfinder.models.tokens import open_tokenizer
from pathfinder.prm.steps import chunks
from pathfinder.tree.layout import TreeBatch, backend_on, batch_trees
from pathfinder.tree.packing import pack, split
from pathfinder.tree.separated import separator_of
from pathfinder.tree.tree import build_tree


class BaselineScorer:
    """A published PRM, used by ``method``. Raises ``DataError`` if the model's folder does not fit."""

    def __init__(
        self,
        model: OpenedModel,
        method: Method,
        dtype: str = "float32",
        token_budget: int = 16384,
        where: str | None = None,
    ) -> None:
        self._files = model.files
        self._tokenizer, self.known = model.part(TOKENIZER) or model.files, model.known
        self._separator = separator_of(model.config.content, str(model.folder))
        self._use(method)  # first, so that a wrong folder is refused before its weights are loaded
        self._model = load_backbone(model, dtype, where)
        self._dtype, self._budget = DTYPES[dtype], token_budget
        self._backend = backend_on(self._model.device)
        self._longest = longest(self._model.config)

    def using(self, method: Method) -> BaselineScorer:
        """The same loaded model, used by a different method."""
        other = copy.copy(self)
        other._use(method)
        return other

    def _use(self, method: Method) -> None:
        self._method = method
        self._text = Text(open_tokenizer(self._tokenizer), *method.adapter.forbidden, separator=self._separator)
        self._head = method.adapter.head(self._text, Shards(self._files))

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """Score every reading of every solution; ``on_done`` receives the number of newly finished solutions.

        Each score has a reward in [0, 1] and perhaps a redundancy, but no labels. A solution that is longer than the
        model's context has no scores.
        """
        out: list[list[StepScore]] = [[] for _ in solutions]
        for chunk in chunks(solutions):
            encoded = {index: self._method.encode(self._text, solutions[index]) for index in chunk}
            with_steps = [i for i in chunk if encoded[i].reads and len(encoded[i].ids) <= self._longest]
            groups = [
                part
                for _, group in groupby(with_steps, key=lambda index: solutions[index].problem)
                for part in split({index: len(encoded[index].ids) for index in group}, self._budget)
            ]
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
                    out[index] = [next(scores) for _ in encoded[index].reads]
            if on_done is not None:
                on_done(len(encoded))
        return out

    @torch.inference_mode()
    def _read(self, batch: TreeBatch) -> list[StepScore]:
        """Scores at the batch's readings."""
        batch = batch.to(self._model.device, self._dtype)
        hidden = self._model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=None,  # transformers cannot build masks for tree attention
            use_cache=False,
            tree=batch.plan,
        ).last_hidden_state[0]
        read = hidden.index_select(0, batch.reads)
        found = self._head(read if read.dtype == torch.float64 else read.float()).double()
        rows = found.reshape(len(read), -1).tolist()
        return [StepScore({}, reward, redundancy=rest[0] if rest else None, means=None) for reward, *rest in rows]

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search; nothing is cached between rounds."""
        return self._score_candidates

    def _score_candidates(self, rounds: Mapping[str, Candidates]) -> dict[str, list[StepScore | None]]:
        """Score the last step of every candidate; the candidates of a problem share a tree."""
        solutions = [
            Solution(f"{key}, candidate {number}", candidates.problem, (*candidates.prefix, step))
            for key, candidates in rounds.items()
            for number, step in enumerate(candidates.steps)
        ]
        last = iter([scores[-1] if scores else None for scores in self.score(solutions)])
        return {key: [next(last) for _ in candidates.steps] for key, candidates in rounds.items()}
