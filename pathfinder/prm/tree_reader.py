"""Read the step scores of queries from batches of trees, one forward pass per batch.

The second pass continues below the branches of the first one and reuses its keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ground.io import DataError
from pathfinder.core.steps import StepScore
from pathfinder.prm.readings import step_score
from pathfinder.tree import layout
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.inference import KVCache
from pathfinder.tree.layout import Backend, TreeBatch, Trunk
from pathfinder.tree.passes import Encoded, Mode, Prompter, Query, Reading, passes_for
from pathfinder.tree.tree import Tree, build_tree, shared_prefix

Prompt = tuple[str, Encoded]
"""A query's name and its prompt."""


@dataclass(frozen=True, slots=True)
class PromptTree:
    """Prompts that share one tree, and the readings that the tree answers."""

    prompts: Sequence[Prompt]
    tree: Tree
    readings: list[Reading]
    found: dict[Reading, npt.NDArray[np.float64]] = field(default_factory=dict)
    """Per reading a row of ``TreeReader._log_probabilities``."""


class TreeReader:
    """A model switched to trees, and the prompts of its variant."""

    def __init__(self, prompter: Prompter, model: Any, dtype: torch.dtype, backend: Backend | None, mode: Mode) -> None:
        use_trees(model)
        self.prompter = prompter
        self._model, self._dtype, self._mode = model, dtype, mode
        self._backend = backend or layout.backend_on(model.device)
        # Two passes of mode "both" run one below the other. Other modes and sequential labels share one tree.
        passes = prompter.passes
        self._has_second = mode is Mode.BOTH and len(passes) == 2
        self._first = passes_for(mode, passes)[:1] if self._has_second else passes_for(mode, passes)
        self._longest = int(getattr(model.config, "max_position_embeddings", 2**31))

    def encode(self, queries: list[Query]) -> list[Prompt | None]:
        """The queries' prompts; None for one that is longer than the model's context."""
        prompts = zip((query.name for query in queries), self.prompter.encode(queries), strict=True)
        return [(name, (ids, slots)) if slots[-1] <= self._longest else None for name, (ids, slots) in prompts]

    def tree(self, prompts: Sequence[Prompt]) -> PromptTree:
        """One tree of the prompts."""
        given = (True,) if self._mode is Mode.POSITIVE else (True, False)
        encoded = [prompt for _, prompt in prompts]
        return PromptTree(prompts, *self.prompter.tree_of(encoded, self._first, given=given))

    @cached_property
    def opening(self) -> Trunk:
        """The system text that starts every prompt: the trunk of a problem that is new."""
        one, other = (self.prompter.encode([Query("", text, (), text)])[0][0] for text in "PQ")
        ids = one[: shared_prefix(one, other)]
        config: Any = self._model.config
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        nothing = torch.empty(config.num_key_value_heads, 0, size, device=self._model.device, dtype=self._dtype)
        empty = Trunk(ids[:0], dict.fromkeys(range(config.num_hidden_layers), (nothing, nothing)))
        tree = build_tree([ids], [(0, len(ids) - 1)])
        batch = layout.batch_onto([tree], [empty], self._backend)
        cache: KVCache = {}
        self._log_probabilities(batch, cache)
        return layout.extend_trunks([tree], [empty], batch, cache)[0]

    @torch.inference_mode()
    def scores(self, trees: Sequence[PromptTree], trunks: list[Trunk] | None = None) -> list[list[StepScore]]:
        """Scores of every tree's queries, from one batch per pass.

        ``trunks`` holds what earlier batches computed of each tree; this batch's trunks replace it.
        """
        plain = [tree.tree for tree in trees]
        if trunks is None:
            batch = layout.batch_trees(plain, self._backend)
        else:
            batch = layout.batch_onto(plain, trunks, self._backend)
        cache: KVCache = {}
        rows = iter(self._log_probabilities(batch, cache if self._has_second or trunks is not None else None))
        for tree in trees:
            tree.found.update((reading, next(rows)) for reading in tree.readings)
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
        wanted: list[tuple[PromptTree, Reading]] = []
        for index, tree in enumerate(trees):
            reads = zip(tree.readings, tree.tree.reads, strict=True)
            node_of = {reading.query: int(node) for reading, node in reads if reading.mark == first.asked[0]}
            for number, (_, (ids, slots)) in enumerate(tree.prompts):
                labels = (tree.found[Reading(number, (), mark)] for mark in first.asked)
                given = tuple(good >= bad for good, bad, _ in labels)
                tail = self.prompter.prompt(ids, slots, given, second.asked)[slots[0] :]
                places = tuple(slots[mark] - 1 - slots[0] for mark in second.asked)
                suffixes.append(layout.Suffix(index, node_of[number], tail, slots[0], places))
                wanted += [(tree, Reading(number, given, mark)) for mark in second.asked]
        below = layout.batch_below([tree.tree for tree in trees], batch, cache, suffixes, trunks, self._backend)
        for (tree, reading), row in zip(wanted, self._log_probabilities(below), strict=True):
            tree.found[reading] = row

    def _log_probabilities(self, batch: TreeBatch, cache: KVCache | None = None) -> npt.NDArray[np.float64]:
        """float64 (readings, 3): log-probabilities of ``<+>``, ``<->`` and the likeliest token of the vocabulary."""
        logits = read_logits(self._model, batch.to(self._model.device, self._dtype), cache)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        ids = self.prompter.ids
        three = torch.stack((logits[:, ids.good], logits[:, ids.bad], logits.max(dim=-1).values), dim=-1)
        three = three - logits.logsumexp(dim=-1, keepdim=True)
        rows = three.double().cpu().numpy()
        if np.isnan(rows).any():
            raise DataError("the model's output is not a number; its weights are broken, or overflow in this dtype")
        return rows
