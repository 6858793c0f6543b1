"""The decoder architectures that the project declares, by the ``model_type`` of config.json.

A declared decoder has the layers of Llama: a norm, attention with rotary positions, a second norm, and a gated
feed-forward block with SiLU. ``tree.inference`` runs these layers itself, and ``shapes`` counts their parameters. A
decoder that is not declared runs in transformers' own forward pass with the same results, but more slowly.

One line here makes the project know another architecture (docs/extend.md). ``tests/tree/test_architectures.py``
compares the trees of each with separate prompts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder with the layers of Llama."""

    causal: str
    """The class of the language model in transformers."""
    has_biases: bool = False
    """True if the projections of queries, keys and values have biases."""


ARCHITECTURES = {
    "llama": Architecture("LlamaForCausalLM"),
    "qwen2": Architecture("Qwen2ForCausalLM", has_biases=True),
}


def architecture_of(model_type: object) -> Architecture | None:
    """The declaration of a ``model_type``; None if it is not declared."""
    return ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None
