"""The parts of a published PRM: a prompt with one reading per step, a head that scores a reading, a decision rule.

An adapter writes a solution as pieces of text. A step's score is read at the token that holds the last character of its
piece. The tokenizer's offsets give that token. Step tokens are never looked up in the ids, so no text can add, hide or
move a reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, Protocol

import numpy as np

from ground.io import DataError
from pathfinder.core.steps import Solution, StepScore, Verdicts
from pathfinder.models.tokens import Ids, around, neutralise, special_strings
from pathfinder.tree.separated import SEPARATOR, Separated

if TYPE_CHECKING:  # a search with one of our own PRMs reads only the names
    import torch
    from transformers import PreTrainedTokenizerFast

Convention = Literal["authors", "benchmark"]
"""How a system is used: as its authors do, or as a benchmark's evaluator does."""
AUTHORS: Final = "authors"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A solution's prompt: ``ids`` int32 (tokens,), and the index of each step's reading in them."""

    ids: Ids
    reads: tuple[int, ...]

    def cut(self, tokens: int) -> Encoded:
        """The first ``tokens`` tokens and the readings in them."""
        return Encoded(self.ids[:tokens], tuple(read for read in self.reads if read < tokens))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt; with ``read``, a step's score is read at the token of its last character."""

    text: str
    read: bool = False


class Text:
    """A tokenizer, the strings that no foreign text may contain, and the model's separator, if any."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, *forbidden: str, separator: str = SEPARATOR) -> None:
        self.tokenizer, self._separator = tokenizer, separator
        self._backend = tokenizer.backend_tokenizer
        self._forbidden = (*special_strings(tokenizer), *forbidden)
        self._frames: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}

    @cached_property
    def separated(self) -> Separated:
        """The prompts with the model's separator after every step. Raises ``DataError`` as ``Separated`` does."""
        return Separated(self.tokenizer, self._separator)

    def safe(self, text: str) -> str:
        """Foreign text in which special tokens and the system's own step token are broken up."""
        return neutralise(text, self._forbidden)

    def frame(self, roles: tuple[str, ...], system: str | None = None) -> list[str]:
        """The text that the chat template puts before, between and after these turns.

        Raises ``DataError`` if the template drops or changes a turn.
        """
        if (system, roles) not in self._frames:
            turns = [(role, f"\x00{place}\x00") for place, role in enumerate(roles)]
            found = around(self.tokenizer, turns, system) if turns else [""]
            if found is None:
                raise DataError(
                    "the chat template drops or changes turns; expected the template of the published system"
                )
            self._frames[system, roles] = found
        return self._frames[system, roles]

    def ids(self, text: str) -> list[int]:
        """Token ids of ``text``, without a beginning token."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def exact(self, text: str, count: int = 1) -> list[int]:
        """Token ids of a text that must be ``count`` tokens; raises ``DataError`` if it is not."""
        ids = self.ids(text)
        if len(ids) != count:
            raise DataError(
                f"the tokenizer splits {text!r} into {len(ids)} tokens, expected {count}; "
                "use the published system's own model folder"
            )
        return ids

    def encode(self, pieces: Sequence[Piece], *, begin: bool = True) -> Encoded:
        """Tokenise the pieces as one text, with the tokenizer's beginning token if ``begin``.

        A piece with ``read`` but without a token, such as an empty piece, is read at the token before it.
        """
        ends = np.cumsum([len(piece.text) for piece in pieces])
        found = self._backend.encode("".join(piece.text for piece in pieces), add_special_tokens=begin)
        real = [(start, place) for place, (start, stop) in enumerate(found.offsets) if stop > start]
        starts = np.array([start for start, _ in real], dtype=np.int64)
        reads = [
            real[int(np.searchsorted(starts, end)) - 1][1]
            for piece, end in zip(pieces, ends, strict=True)
            if piece.read
        ]
        return Encoded(np.asarray(found.ids, dtype=np.int32), tuple(reads))


Head = Callable[["torch.Tensor"], "torch.Tensor"]
"""Hidden states at readings (readings, hidden size) -> rewards (readings,) in [0, 1], higher is better.

A system that also judges whether a step is redundant gives (readings, 2): the reward and that probability.
"""


class Weights(Protocol):
    """The tensors of a model folder by name, in float32 (``backbone.Shards``)."""

    def __contains__(self, name: str) -> bool:
        """Return whether the folder has a tensor of that name."""

    def __call__(self, name: str, rows: Sequence[int] | None = None) -> torch.Tensor:
        """The tensor, or some of its rows; raises ``DataError`` if the folder has no such tensor."""


class Adapter(Protocol):
    """One system's prompt and head."""

    @property
    def forbidden(self) -> tuple[str, ...]:
        """Strings that have a meaning in the prompt but are not special tokens of the tokenizer."""
        ...

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """The prompt, with one reading per step or, for some evaluators, more or fewer."""
        ...

    def head(self, text: Text, weights: Weights) -> Head:
        """The head, in float32."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """A step is correct if its reward, or with ``change`` its rise from the step before, exceeds ``threshold``.

    With ``redundancy``, a step is redundant if its score of redundancy exceeds that threshold.
    """

    threshold: float = 0.5
    change: bool = False
    redundancy: float | None = None

    def verdicts(self, steps: Sequence[StepScore]) -> Verdicts:
        """The verdict on each step: correct or not and, with ``redundancy``, redundant or not."""
        correct = [value > self.threshold for value in self.judged([step.reward for step in steps])]
        limit = self.redundancy
        redundant = None if limit is None else [(step.redundancy or 0.0) > limit for step in steps]
        return Verdicts(correct, redundant)

    def judged(self, rewards: Sequence[float]) -> list[float]:
        """The values that are compared with the threshold; the first step's rise is its reward."""
        return [b - a for a, b in zip([0.0, *rewards], rewards, strict=False)] if self.change else list(rewards)


@dataclass(frozen=True, slots=True)
class Method:
    """A way to use a system; readings after the first ``tokens`` of a prompt are left out."""

    adapter: Adapter
    rule: Rule = Rule()
    tokens: int | None = None

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """The adapter's prompt, cut to ``tokens``."""
        found = self.adapter.encode(text, solution)
        return found if self.tokens is None else found.cut(self.tokens)


def as_prmbench(adapter: Adapter, rule: Rule = Rule()) -> Method:
    """A method of PRMBench's evaluator, which cuts every prompt at 2,048 tokens.

    Source: ssmisya/PRMBench@a1ae4ea ``mr_eval/tasks/base_dataset/base_evaluation_dataset.py`` and
    ``mr_eval/tasks/prmtest_classified/config.yaml``.
    """
    return Method(adapter, rule, tokens=2048)


@dataclass(frozen=True, slots=True)
class System:
    """A published PRM.

    ``titles`` are its names in the paper's tables. ``methods`` holds the authors' method and, under a benchmark's name,
    the evaluator's method if it differs; the published figures come from the evaluator. The docstring of the system's
    file names the sources, with commits, and the questions that they leave open.
    """

    name: str
    titles: tuple[str, ...]
    methods: Mapping[str, Method]

    def conventions(self, benchmark: str) -> tuple[Convention, ...]:
        """The conventions that differ on this benchmark, the authors' first."""
        return (AUTHORS, "benchmark") if benchmark in self.methods else (AUTHORS,)

    def method(self, benchmark: str, convention: Convention) -> Method:
        """The authors' method, or the method of ``benchmark``'s evaluator if it differs."""
        return self.methods.get(benchmark if convention == "benchmark" else AUTHORS, self.methods[AUTHORS])
