"""The passes of a PRM: the labels that each prompt gives and asks for, and the tree that holds all prompts.

The hierarchical variants ask first for the error labels, both masked so that neither sees the other, and then for
Correctness given these labels (paper section 3.2 and algorithm 1; ``build_dataset.py``).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from ground.io import DataError
from pathfinder.core import prompts
from pathfinder.core.prompts import Variant
from pathfinder.models.tokens import ChatFrame, Ids, LabelIds, label_ids, neutralise, special_strings
from pathfinder.tree.tree import Tree, build_tree

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class Preset:
    """The prompt of a published runner, and its way to compute a probability."""

    system: str = prompts.SYSTEM_TRAINING
    lead: str = "Current Step: "
    answer_role: str = "assistant"
    counts_steps: bool = False
    """Write the blank line after an empty first step, like runners that test the list of steps, not their text."""
    strip_step_prefix: bool = False
    full_softmax: bool = False
    """Take P(<+>) over the whole vocabulary rather than over the two label tokens."""
    strict: bool = False
    """Refuse a first-pass label whose most likely token is neither ``<+>`` nor ``<->``, up to the first error."""


PRESETS: dict[str, Preset] = {
    "default": Preset(),
    "official-processbench": Preset(counts_steps=True, strict=True),  # run_eval_pathfinder_prm.py
    "official-prmbench": Preset(  # disc_PRM.py
        system=prompts.SYSTEM_PRMBENCH, lead="Current step: ", strip_step_prefix=True, full_softmax=True
    ),
    "official-search": Preset(  # Greedy-Seach-Zero-Shot.py
        system=prompts.SYSTEM_SEARCH, answer_role="user", counts_steps=True
    ),
}


class Mode(StrEnum):
    """The labels that a scorer predicts for a step."""

    BOTH = "both"
    """The error labels, then Correctness given the predicted labels (paper algorithm 1)."""
    FIRST = "pass1"
    """Only the error labels, as in the published ProcessBench and PRMBench runners. There is no reward."""
    POSITIVE = "positive"
    """The error labels, and Correctness given ``<+>`` for all: enough for a search that drops all other steps."""
    ALL = "all"
    """Every combination of error labels; the reward is Correctness averaged over them by their probabilities."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The labels that a pass receives and the labels that it asks for, as positions in the variant's marks."""

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
    """Correctness averaged over the labels before it, each combination weighted by its probability.

    ``positive`` gives P(``<+>``) of a mark given the labels before it.
    """
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
    """The passes that a mode runs; ``FIRST`` omits the last pass, which asks for Correctness."""
    return passes[:-1] if mode is Mode.FIRST and len(passes) > 1 else passes


@dataclass(frozen=True, slots=True)
class Query:
    """A step to judge, which follows ``prefix`` in a solution of ``problem``. ``name`` identifies it in errors."""

    name: str
    problem: str
    prefix: tuple[str, ...]
    step: str


@dataclass(frozen=True, slots=True)
class Place:
    """A place of a tree: it answers mark ``mark`` of query ``query``, given the labels ``given``."""

    query: int
    given: tuple[bool, ...]
    mark: int


Encoded = tuple[Ids, tuple[int, ...]]
"""A query's prompt with every mark masked, and the positions of the marks' tokens."""


class Prompts(ABC):
    """Turns queries into trees of prompts for one variant; ``encode`` decides the form of the prompts."""

    def __init__(self, variant: Variant, ids: LabelIds) -> None:
        """``ids`` are the places of a true and a false label among the network's outputs, and the mask of a label."""
        self.variant, self.ids = variant, ids
        self._marks = (*variant.first, *variant.second)
        self.labels: tuple[str, ...] = tuple(mark.label for mark in self._marks)
        self.passes = passes(variant)

    @abstractmethod
    def encode(self, queries: Sequence[Query]) -> list[Encoded]:
        """Each query's prompt with every mark masked, and the positions of the marks' tokens."""

    @property
    def samples(self) -> list[Sequence[Pass]]:
        """The passes of each sample that the published training makes from a record."""
        return [self.passes] if self.variant.sequential else [(step,) for step in self.passes]

    def prompt(self, ids: Ids, slots: Sequence[int], given: Sequence[bool], asked: Sequence[int]) -> Ids:
        """The separate prompt of a pass, up to the last label that it asks for (exclusive)."""
        cut = ids[: slots[asked[-1]]].copy()
        cut[list(slots[: len(given)])] = [self.ids.of(positive) for positive in given]
        return cut

    def tree(self, queries: Sequence[Query], gold: Sequence[Sequence[bool]] | None = None) -> tuple[Tree, list[Place]]:
        """One tree for queries that share a problem, and its places in the queries' order.

        With ``gold``, the true labels of every query, the second pass is given the gold first labels as in training.
        Without it, every combination of first labels is a branch, so every prediction finds its reward.
        """
        return self.tree_of(self.encode(queries), self.passes, gold)

    def tree_of(
        self,
        encoded: Sequence[Encoded],
        passes: Sequence[Pass],
        gold: Sequence[Sequence[bool]] | None = None,
        given: Sequence[bool] = (True, False),
    ) -> tuple[Tree, list[Place]]:
        """``tree`` for encoded queries, some of the passes, and combinations of only the labels ``given``."""
        sequences: list[Ids] = []
        reads: list[tuple[int, int]] = []
        places: list[Place] = []
        for number, (ids, slots) in enumerate(encoded):
            for step in passes:
                combinations = itertools.product(given, repeat=len(step.given))
                for labels in combinations if gold is None else (tuple(gold[number][: len(step.given)]),):
                    for mark in step.asked:
                        reads.append((len(sequences), slots[mark] - 1))
                        places.append(Place(number, tuple(labels), mark))
                    sequences.append(self.prompt(ids, slots, labels, step.asked))
        return build_tree(sequences, reads), places


class Prompter(Prompts):
    """Prompts of PathFinder-PRM for one variant, tokenizer and preset: one step, with a label token at each mark."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        variant: Variant,
        preset: Preset = PRESETS["default"],
        ids: LabelIds | None = None,
    ) -> None:
        """Without the ``ids`` of the label tokens, add the missing ones to the tokenizer."""
        super().__init__(variant, ids or label_ids(tokenizer))
        self.preset = preset
        self._frame = ChatFrame(tokenizer, preset.answer_role)
        self._specials = special_strings(tokenizer)
        self._is_label = np.zeros(max(len(tokenizer), *tokenizer.added_tokens_decoder) + 1, dtype=np.bool_)
        self._is_label[[self.ids.good, self.ids.bad, self.ids.mask]] = True

    def turns(self, query: Query, tokens: Sequence[str]) -> tuple[str, str]:
        """The user and assistant turns with ``tokens`` at the first marks; special tokens in texts are neutralised."""
        clean = [neutralise(text, self._specials) for text in (query.problem, *query.prefix, query.step)]
        if self.preset.strip_step_prefix:
            clean[1:] = [prompts.unnumbered(text) for text in clean[1:]]
        marks = [(mark.caption, token) for mark, token in zip(self._marks, tokens, strict=False)]
        user = prompts.user_turn(clean[0], self.preset.system)
        return user, prompts.assistant_turn(clean[1:-1], clean[-1], marks, self.preset.lead, self.preset.counts_steps)

    def encode(self, queries: Sequence[Query]) -> list[Encoded]:
        """Each query's prompt with every mark masked, and the positions of the marks' tokens.

        The other prompts of the query differ only in these tokens: a tokenizer splits at special tokens first, so the
        ids between them do not depend on the labels. Raises ``DataError`` if a prompt has other label tokens.
        """
        masked = [prompts.MASK] * len(self.labels)
        encoded = self._frame.encode([self.turns(query, masked) for query in queries])
        out: list[Encoded] = []
        for query, ids in zip(queries, encoded, strict=True):
            slots = tuple(np.flatnonzero(self._is_label[ids]).tolist())
            if len(slots) != len(masked) or 0 in slots:
                raise DataError(f"{query.name}: {len(slots)} label tokens in its prompt, expected {len(masked)}")
            out.append((ids, slots))
        return out
