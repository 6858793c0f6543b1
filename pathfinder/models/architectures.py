"""The decoder architectures that the project declares, by the ``model_type`` of config.json.

A declared decoder has the layers of Llama: a norm, attention with rotary positions, a second norm, and a gated
feed-forward block with SiLU. ``decoder`` runs these layers itself, and ``Shape`` counts their parameters. A decoder
that is not declared runs in transformers' own forward pass with the same results, but more slowly.

One line here adds an architecture (docs/extend.md). ``tests/tree/test_architectures.py`` compares the trees of each
with separate prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ground.io import DataError

if TYPE_CHECKING:
    from pathfinder.core.params import Lora


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


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a model, as its config.json describes it."""

    name: str
    hidden: int
    inner: int
    layers: int
    query_width: int
    """Numbers in the queries of one token."""
    key_width: int
    """Numbers in the keys, or the values, of one token."""
    vocabulary: int
    tied: bool
    biased: bool
    head_width: int = 128
    """Numbers in one attention head."""

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """The sides of each matrix of a layer, by module name."""
        widths = dict.fromkeys(("q_proj", "o_proj"), self.query_width)
        widths |= dict.fromkeys(("k_proj", "v_proj"), self.key_width)
        widths |= dict.fromkeys(("gate_proj", "up_proj", "down_proj"), self.inner)
        return {module: (self.hidden, width) for module, width in widths.items()}

    @property
    def matrix_parameters(self) -> int:
        """Parameters in the matrices of one layer."""
        return sum(rows * columns for rows, columns in self.matrices.values())

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        biases = self.query_width + 2 * self.key_width if self.biased else 0
        return self.matrix_parameters + biases + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        ends = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * self.layer + ends + self.hidden

    @property
    def keys_and_values(self) -> int:
        """Numbers that one token adds to the cache."""
        return 2 * self.layers * self.key_width

    def divides(self, gpus: int) -> bool:
        """Return whether vLLM can divide the model over this many GPUs, by its Qwen2 and Llama models.

        Each GPU gets the same number of attention heads. The key-value heads are divided or, if they are fewer than
        GPUs, copied.
        """
        heads, keys = self.query_width // self.head_width, self.key_width // self.head_width
        return heads % gpus == 0 and (keys % gpus == 0 or gpus % keys == 0)

    def adapter(self, lora: Lora) -> int:
        """Parameters that a LoRA adapter trains, including the rows of the label tokens."""
        sides = (self.matrices.get(name, (self.hidden, self.inner)) for name in lora.targets)
        return self.layers * lora.rank * sum(map(sum, sides)) + 6 * self.hidden


_MOST = 1 << 40
"""No size of a model reaches this number; a larger size is an error in the file."""


def shape_of(config: Any, name: str) -> Shape:
    """Read a config.json; raises ``DataError`` naming a field that is missing or not a positive integer."""

    def whole(key: str, default: int | None = None) -> int:
        value = default if config.get(key) is None else config[key]
        if type(value) is not int or not 0 < value < _MOST:
            raise DataError(f"{name}: config.json has {key} {value!r:.80}; expected a positive integer: fetch it again")
        return value

    if not isinstance(config, dict):
        raise DataError(f"{name}: config.json is no object; fetch it again")
    heads, hidden = whole("num_attention_heads"), whole("hidden_size")
    size = whole("head_dim", hidden // heads)
    known = architecture_of(config.get("model_type"))
    return Shape(
        name,
        hidden=hidden,
        inner=whole("intermediate_size"),
        layers=whole("num_hidden_layers"),
        query_width=heads * size,
        key_width=whole("num_key_value_heads", heads) * size,
        vocabulary=whole("vocab_size"),
        tied=bool(config.get("tie_word_embeddings", False)),
        biased=known is not None and known.has_biases,
        head_width=size,
    )
