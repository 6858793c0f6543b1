"""A tokenizer and a model whose answers a case gives, in the place of the PRM that a published runner loads.

The runners' own code builds the prompt, finds the masks, and reads the logits before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch

_TOKENS = ("other", "<+>", "<->", "<extra>")
_LABELS = re.compile(r"<\+>|<->|<extra>")
_LEAST = 1e-30
Said = Sequence[Sequence[float]]
"""Per mask the probabilities of ``<+>``, ``<->`` and of another token."""


class _Encoded(dict[str, torch.Tensor]):
    def to(self, device: Any) -> _Encoded:
        del device
        return self


class Tokenizer:
    """Every character is a token, and so is each label token. ``turns`` keeps the messages of every prompt."""

    pad_token_id, unk_token_id = 0, None
    pad_token = eos_token = "other"  # noqa: S105

    def __init__(self) -> None:
        self.turns: list[list[dict[str, str]]] = []

    def encode(self, text: str, **settings: Any) -> list[int]:
        del settings
        if text in _TOKENS:
            return [_TOKENS.index(text)]
        labels, others = _LABELS.findall(text), _LABELS.split(text)
        ids = [0] * len(others[0])
        for label, rest in zip(labels, others[1:], strict=True):
            ids += [_TOKENS.index(label), *[0] * len(rest)]
        return ids

    def convert_tokens_to_ids(self, token: str) -> int:
        return _TOKENS.index(token)

    def decode(self, ids: Sequence[int], **settings: Any) -> str:
        del settings
        return "".join(_TOKENS[number] for number in ids)

    def apply_chat_template(self, messages: list[dict[str, str]], tokenize: bool = False, **settings: Any) -> Any:
        del settings
        self.turns.append([dict(message) for message in messages])
        text = "".join(f"\n{message['role']}\n{message['content']}" for message in messages)
        if not tokenize:
            return text
        return _Encoded(input_ids=torch.tensor([self.encode(text)]))


class Model:
    """Answers the prompts of one call after the other: a row of ``said`` for each prompt."""

    device = "cpu"

    def __init__(self, said: Iterator[Said]) -> None:
        self._said = said

    def eval(self) -> Model:
        return self

    def __call__(self, input_ids: torch.Tensor, **settings: Any) -> Any:
        del settings
        logits = torch.zeros(*input_ids.shape, len(_TOKENS), dtype=torch.float64)
        for row, ids in enumerate(input_ids):
            masks = (ids == _TOKENS.index("<extra>")).nonzero().flatten()
            for mask, (good, bad, other) in zip(masks, next(self._said), strict=True):
                shares = torch.tensor([other, good, bad, 0.0], dtype=torch.float64)
                logits[row, mask - 1] = shares.clamp(min=_LEAST).log()
        return SimpleNamespace(logits=logits)


def loaded(found: Any) -> Any:
    """A class whose ``from_pretrained`` returns ``found``."""
    return SimpleNamespace(from_pretrained=lambda *_, **__: found)
