"""What a system is: a prompt with one reading a step, a head that turns a reading into a score, and a decision rule.

An adapter writes a solution as pieces of text. Each piece may be *read*: the score of a step is taken at the token
that holds the piece's last character. Places come from the tokenizer's own offsets, never from looking for a step
token in the ids, so that no text can add, hide or move a reading.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from pathfinder.core.io import DataError
from pathfinder.models.tokens import Ids, neutralise, special_strings
from pathfinder.prm.scoring import Solution

_STEP_NUMBER = re.compile(r"^(Step\s*\d+\.\s*|\d+\.\s*)", re.IGNORECASE)
Preset = Literal["authors", "benchmark"]
AUTHORS: Final = "authors"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A solution's prompt: ``ids`` int32 (tokens,) and, per step, the place in them whose output is its score."""

    ids: Ids
    reads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt; ``read`` where a step's score is taken at the token of its last character."""

    text: str
    read: bool = False


class Text:
    """A tokenizer that knows where its tokens stand in the text, and which strings no text from outside may hold."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, *forbidden: str) -> None:
        self.tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._forbidden = (*special_strings(tokenizer), *forbidden)
        self._frames: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}

    def safe(self, text: str) -> str:
        """Text from outside, without special tokens or the system's own step token."""
        return neutralise(text, self._forbidden)

    def frame(self, roles: tuple[str, ...], system: str | None = None) -> list[str]:
        """The chat template's own text around turns of these roles: before the first, between them, after the last."""
        if (system, roles) not in self._frames:
            marks = [f"\x00{place}\x00" for place in range(len(roles))]
            turns = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
            if system is not None:
                turns.insert(0, {"role": "system", "content": system})
            rest = str(self.tokenizer.apply_chat_template(turns, tokenize=False)) if turns else ""
            frame = []
            for mark in marks:
                before, found, rest = rest.partition(mark)
                if not found:
                    raise DataError("the chat template leaves turns out or changes them; is it the system's own?")
                frame.append(before)
            self._frames[system, roles] = [*frame, rest]
        return self._frames[system, roles]

    def ids(self, text: str) -> list[int]:
        """Ids of ``text`` alone, without a beginning token."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def one(self, text: str) -> int:
        """The id of a text that must be one token; raises ``DataError`` where it is not."""
        ids = self.ids(text)
        if len(ids) != 1:
            raise DataError(f"the tokenizer reads {text!r} as {len(ids)} tokens, expected 1; is it the system's own?")
        return ids[0]

    def pair(self, text: str) -> tuple[int, int]:
        """The ids of a text that must be two tokens: the one for a right step, then the one for a wrong step."""
        ids = self.ids(text)
        if len(ids) != 2:
            raise DataError(f"the tokenizer reads {text!r} as {len(ids)} tokens, expected 2; is it the system's own?")
        return ids[0], ids[1]

    def encode(self, pieces: Sequence[Piece], *, whole: bool = True) -> Encoded:
        """The pieces as one prompt, tokenised as one text, with the tokenizer's beginning token where ``whole``.

        A piece that is read and left no token of its own (it is empty, say) is read at the token before it.
        """
        ends = np.cumsum([len(piece.text) for piece in pieces])
        found = self._backend.encode("".join(piece.text for piece in pieces), add_special_tokens=whole)
        real = [(start, place) for place, (start, stop) in enumerate(found.offsets) if stop > start]
        starts = np.array([start for start, _ in real], dtype=np.int64)
        reads = [
            real[int(np.searchsorted(starts, end)) - 1][1]
            for piece, end in zip(pieces, ends, strict=True)
            if piece.read
        ]
        return Encoded(np.asarray(found.ids, dtype=np.int32), tuple(reads))


class Head(Protocol):
    """Turns hidden states at readings into scores."""

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """(readings, hidden size) -> (readings,): scores in [0, 1], higher is better; same dtype."""
        ...


class Weights(Protocol):
    """Tensors of a model folder by their published names."""

    def __call__(self, name: str, rows: Sequence[int] | None = None) -> torch.Tensor:
        """A tensor, or some of its rows; raises ``DataError`` where the folder has none of that name."""
        ...

    def __contains__(self, name: str) -> bool:
        """Does the folder have it?"""
        ...


class Adapter(Protocol):
    """One system's prompt and head."""

    @property
    def forbidden(self) -> tuple[str, ...]:
        """Strings that mean something in the prompt and are not special tokens of the tokenizer."""
        ...

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """The prompt with one reading a step."""
        ...

    def head(self, text: Text, weights: Weights) -> Head:
        """The head, in float32."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """When a step is sound: its score, or with ``change`` its rise over the step before, is over ``threshold``."""

    threshold: float = 0.5
    change: bool = False

    def sound(self, scores: Sequence[float]) -> list[bool]:
        """One verdict a step."""
        return [score > self.threshold for score in self.judged(scores)]

    def judged(self, scores: Sequence[float]) -> list[float]:
        """What is held against the threshold."""
        return [b - a for a, b in zip([0.0, *scores], scores, strict=False)] if self.change else list(scores)


@dataclass(frozen=True, slots=True)
class Method:
    """A way to use a system."""

    adapter: Adapter
    rule: Rule = Rule()


@dataclass(frozen=True, slots=True)
class System:
    """A published PRM.

    ``titles`` are its names in the paper's tables. ``methods`` holds the authors' own way and, under a benchmark's
    name, the way of that benchmark's evaluator where it is another (its published figures came of that one).
    ``not_found`` says what its authors' documents leave open.
    """

    name: str
    titles: tuple[str, ...]
    repository: str
    sources: tuple[str, ...]
    methods: Mapping[str, Method]
    not_found: str = ""

    def method(self, benchmark: str, preset: Preset) -> Method:
        """The authors' way, or with preset ``benchmark`` the evaluator's own where it has one."""
        return self.methods.get(benchmark if preset == "benchmark" else AUTHORS, self.methods[AUTHORS])


def unnumbered(step: str) -> str:
    """A step without ``Step 3. `` or ``3. `` (PRMBench's ``remove_step_prefix``)."""
    return _STEP_NUMBER.sub("", step.strip())
