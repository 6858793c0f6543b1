"""The systems' heads: label tokens of a language model, a scalar, or classes.

Each takes hidden states (readings, hidden size) from after the backbone's last norm and computes in their dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pathfinder.baselines.adapter import Weights

LM_HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class TokenHead:
    """The probability of the label token for a correct step, among both label tokens or the whole vocabulary.

    ``rows`` (2 or vocabulary, hidden size) come from the language model's head; ``good`` is the row of that token.
    """

    rows: torch.Tensor
    good: int = 0

    @classmethod
    def of(cls, weights: Weights, good: int, bad: int, full: bool = False) -> TokenHead:
        """Take the rows from ``lm_head.weight``, or from the embeddings if the two are tied."""
        name = LM_HEAD if LM_HEAD in weights else EMBEDDINGS
        return cls(weights(name), good) if full else cls(weights(name, (good, bad)))

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """(readings, hidden size) -> (readings,)."""
        return (hidden @ self.rows.to(hidden).T).softmax(dim=-1)[:, self.good]


@dataclass(frozen=True, slots=True)
class ScalarHead:
    """The sigmoid of one linear output: ``weight`` (hidden size,), ``bias`` a scalar or None."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """(readings, hidden size) -> (readings,)."""
        value = hidden @ self.weight.to(hidden)
        return (value if self.bias is None else value + self.bias.to(hidden)).sigmoid()


@dataclass(frozen=True, slots=True)
class ClassHead:
    """The total probability of the ``good`` classes after linear layers with ReLU between them.

    Each of ``layers`` is a weight (out, in) and a bias (out,) or None.
    """

    layers: tuple[tuple[torch.Tensor, torch.Tensor | None], ...]
    good: tuple[int, ...]

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """(readings, hidden size) -> (readings,)."""
        for number, (weight, bias) in enumerate(self.layers):
            hidden = torch.nn.functional.linear(
                hidden.relu() if number else hidden, weight.to(hidden), None if bias is None else bias.to(hidden)
            )
        return hidden.softmax(dim=-1)[:, list(self.good)].sum(dim=-1)
