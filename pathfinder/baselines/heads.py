"""The systems' heads: label tokens of a language model, a scalar, or classes.

Each head takes hidden states (readings, hidden size) from after the backbone's last norm and computes in their dtype.
``adapter.Head`` explains the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pathfinder.baselines.adapter import Head, Weights

if TYPE_CHECKING:
    import torch

LM_HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"


def token_head(weights: Weights, labels: Sequence[int], full: bool = False) -> Head:
    """The probability of the first label token, relative to the second or, with ``full``, to the whole vocabulary.

    The rows of the language model's head come from ``lm_head.weight``, or from the embeddings if the two are tied.
    """
    name = LM_HEAD if LM_HEAD in weights else EMBEDDINGS
    rows, place = (weights(name), labels[0]) if full else (weights(name, labels), 0)
    return lambda hidden: (hidden @ rows.to(hidden).T).softmax(dim=-1)[:, place]


def scalar_head(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Head:
    """The sigmoid of one linear output: ``weight`` (hidden size,), ``bias`` a scalar."""

    def head(hidden: torch.Tensor) -> torch.Tensor:
        value = hidden @ weight.to(hidden)
        return (value if bias is None else value + bias.to(hidden)).sigmoid()

    return head


def class_head(layers: Sequence[tuple[torch.Tensor, torch.Tensor | None]], *classes: list[int]) -> Head:
    """The total probability of each of ``classes`` after linear layers with ReLU between them.

    The first entry of ``classes`` lists the classes of a correct step; the second entry, if any, the classes of a
    redundant step. Each of ``layers`` is a weight (out, in) and a bias (out,).
    """
    import torch
    from torch.nn.functional import linear

    def head(hidden: torch.Tensor) -> torch.Tensor:
        for number, (weight, bias) in enumerate(layers):
            inputs = hidden.relu() if number else hidden
            hidden = linear(inputs, weight.to(hidden), None if bias is None else bias.to(hidden))
        shares = hidden.softmax(dim=-1)
        return torch.stack([shares[:, wanted].sum(dim=-1) for wanted in classes], dim=-1)

    return head
