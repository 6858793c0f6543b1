"""The passes of a PRM: which labels a prompt gives, which it asks for, and the trees that hold all of them.

The hierarchical variants ask for the error labels first (masked, so that neither sees the other) and for correctness
second, given the first labels (paper section 3.2 and algorithm 1; ``build_dataset.py``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from transformers import PreTrainedTokenizerFast

from pathfinder.core import prompts
from pathfinder.core.io import DataError
from pathfinder.core.prompts import Label, Variant
from pathfinder.models.tokens import ChatFrame, Ids, LabelIds, label_ids, neutralise, special_strings
from pathfinder.tree.tree import Tree, build_tree

_STEP_PREFIX = re.compile(r"^(Step\s*\d+\.\s*|\d+\.\s*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Preset:
    """A published runner's prompt: system text, words before the step, the second turn's role, and how P is taken."""

    system: str = prompts.SYSTEM_TRAINING
    lead: str = "Current Step: "
    answer_role: str = "assistant"
    strip_step_prefix: bool = False
    full_softmax: bool = False
    """P(<+>) over the whole vocabulary rather than over the two label tokens."""
    strict: bool = False
    """Refuse a first label whose most likely token is neither ``<+>`` nor ``<->``."""


PRESETS: dict[str, Preset] = {
    "default": Preset(),
    "official-processbench": Preset(strict=True),  # run_eval_pathfinder_prm.py
    "official-prmbench": Preset(  # disc_PRM.py
        system=prompts.SYSTEM_PRMBENCH, lead="Current step: ", strip_step_prefix=True, full_softmax=True
    ),
    "official-search": Preset(system=prompts.SYSTEM_SEARCH, answer_role="user"),  # Greedy-Seach-Zero-Shot.py
}


class Mode(StrEnum):
    """What a scorer asks of a step."""

    BOTH = "both"
    """The labels, then Correctness given the predicted ones (paper algorithm 1)."""
    FIRST = "pass1"
    """The labels alone, as the published ProcessBench and PRMBench runners do; no reward where a variant has labels."""
    POSITIVE = "positive"
    """Correctness given that every label is ``<+>``, all at once: enough for a search that drops every other step."""
    ALL = "all"
    """Every combination of labels at once; the reward is Correctness averaged over them by their probabilities."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: the labels that it is given and those that it asks for, as positions in the variant's marks."""

    given: tuple[int, ...]
    asked: tuple[int, ...]


def passes(variant: Variant) -> tuple[Pass, ...]:
    """The variant's passes in order."""
    first, marks = len(variant.first), len(variant.first) + len(variant.second)
    if variant.sequential:
        return tuple(Pass(tuple(range(i)), (i,)) for i in range(marks))
    head = Pass((), tuple(range(first)))
    return (head, Pass(head.asked, tuple(range(first, marks)))) if variant.second else (head,)


def expected_reward(passes: Sequence[Pass], positive: Callable[[tuple[bool, ...], int], float]) -> float:
    """Correctness averaged over the labels before it, each combination by its probability."""
    weights: dict[tuple[bool, ...], float] = {(): 1.0}
    for step in passes[:-1]:
        for mark in step.asked:
            weights = {
                (*labels, label): weight * (p if label else 1 - p)
                for labels, weight in weights.items()
                for p in (positive(labels[: len(step.given)], mark),)
                for label in (True, False)
            }
    (last,) = passes[-1].asked
    return sum(weight * positive(labels[: len(passes[-1].given)], last) for labels, weight in weights.items())


def passes_for(mode: Mode, passes: Sequence[Pass]) -> Sequence[Pass]:
    """The passes that a mode runs: the last, which asks for Correctness, is left out where labels alone are wanted."""
    return passes[:-1] if mode is Mode.FIRST and len(passes) > 1 else passes


@dataclass(frozen=True, slots=True)
class Query:
    """One step to judge: it follows ``prefix`` in a solution of ``problem``. ``name`` is for error messages."""

    name: str
    problem: str
    prefix: tuple[str, ...]
    step: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What one reading of a tree answers: mark ``mark`` of query ``query``, given the labels ``given``."""

    query: int
    given: tuple[bool, ...]
    mark: int


Encoded = tuple[Ids, tuple[int, ...]]
"""A query's prompt with every mark masked, and where the marks' tokens stand in it."""


class Prompter:
    """Turns queries into trees of prompts for one variant, tokenizer and preset."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, variant: Variant, preset: Preset = PRESETS["default"]
    ) -> None:
        self.variant, self.preset = variant, preset
        self.ids: LabelIds = label_ids(tokenizer)
        self.labels: tuple[Label, ...] = tuple(mark.label for mark in (*variant.first, *variant.second))
        self.passes = passes(variant)
        self._frame = ChatFrame(tokenizer, preset.answer_role)
        self._specials = special_strings(tokenizer)
        self._is_label = np.zeros(max(len(tokenizer), *tokenizer.added_tokens_decoder) + 1, dtype=np.bool_)
        self._is_label[[self.ids.good, self.ids.bad, self.ids.mask]] = True

    def turns(self, query: Query, tokens: Sequence[str]) -> tuple[str, str]:
        """The prompt's two turns with ``tokens`` at the first marks; outside text is neutralised."""
        clean = [neutralise(text, self._specials) for text in (query.problem, *query.prefix, query.step)]
        if self.preset.strip_step_prefix:
            clean[1:] = [_STEP_PREFIX.sub("", text.strip()) for text in clean[1:]]
        captions = (mark.caption for mark in (*self.variant.first, *self.variant.second))
        marks = list(zip(captions, tokens, strict=False))
        user = prompts.user_turn(clean[0], self.preset.system)
        return user, prompts.assistant_turn(clean[1:-1], clean[-1], marks, self.preset.lead)

    def encode(self, queries: Sequence[Query]) -> list[Encoded]:
        """Per query the prompt with every mark masked, and where the marks' tokens stand in it.

        Every other prompt of the query differs from it in these tokens only: special tokens cut the text before
        anything else does, so the ids between them cannot depend on which label stands there.
        """
        masked = [prompts.MASK] * len(self.labels)
        encoded = self._frame.encode([self.turns(query, masked) for query in queries])
        out = []
        for query, ids in zip(queries, encoded, strict=True):
            slots = tuple(np.flatnonzero(self._is_label[ids]).tolist())
            if len(slots) != len(masked) or slots[0] == 0:
                raise DataError(f"{query.name}: {len(slots)} label tokens in its prompt, expected {len(masked)}")
            out.append((ids, slots))
        return out

    def prompt(self, ids: Ids, slots: Sequence[int], given: Sequence[bool], asked: Sequence[int]) -> Ids:
        """The stand-alone prompt of a pass up to the last label that it asks for (that label's token excluded)."""
        cut = ids[: slots[asked[-1]]].copy()
        for slot, positive in zip(slots, given, strict=False):
            cut[slot] = self.ids.of(positive)
        return cut

    def tree(
        self, queries: Sequence[Query], gold: Sequence[Sequence[bool]] | None = None
    ) -> tuple[Tree, list[Reading]]:
        """One tree for queries that share a problem, and what its readings answer, in order.

        With ``gold`` (per query the true label of every mark) the second pass is given the gold first labels, as in
        training; without, every combination of first labels is a branch, so that any prediction finds its reward.
        """
        return self.tree_of(self.encode(queries), self.passes, gold)

    def tree_of(
        self,
        encoded: Sequence[Encoded],
        passes: Sequence[Pass],
        gold: Sequence[Sequence[bool]] | None = None,
        given: Sequence[bool] = (True, False),
    ) -> tuple[Tree, list[Reading]]:
        """As ``tree``, for encoded queries, some of the passes, and combinations of some labels."""
        sequences: list[Ids] = []
        reads: list[tuple[int, int]] = []
        readings: list[Reading] = []
        for number, (ids, slots) in enumerate(encoded):
            for step in passes:
                every = itertools.product(given, repeat=len(step.given))
                for stated in every if gold is None else (tuple(gold[number][: len(step.given)]),):
                    for mark in step.asked:
                        reads.append((len(sequences), slots[mark] - 1))
                        readings.append(Reading(number, tuple(stated), mark))
                    sequences.append(self.prompt(ids, slots, stated, step.asked))
        return build_tree(sequences, reads), readings
