"""Sizes of models, read from their config.json or, for published models, known before they are fetched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ground.io import DataError, read_json
from pathfinder.core.hub import MANIFEST, downloaded_sources
from pathfinder.core.params import Lora, Source
from pathfinder.models.architectures import architecture_of
from pathfinder.models.folders import open_model


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a model, as its config.json describes it (``architectures``)."""

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

        Each GPU gets as many attention heads. The key-value heads are divided or, if they are fewer than GPUs, copied.
        """
        heads, keys = self.query_width // self.head_width, self.key_width // self.head_width
        return heads % gpus == 0 and (keys % gpus == 0 or gpus % keys == 0)

    def adapter(self, lora: Lora) -> int:
        """Parameters that a LoRA adapter trains, including the rows of the label tokens."""
        sides = (self.matrices.get(name, (self.hidden, self.inner)) for name in lora.targets)
        return self.layers * lora.rank * sum(map(sum, sides)) + 6 * self.hidden


_MOST = 1 << 40
"""No size of a model reaches this number; a larger one is an error in the file."""
_QWEN_1B = Shape("", 1536, 8960, 28, 1536, 256, 151_936, tied=True, biased=True)
_QWEN_7B = Shape("", 3584, 18944, 28, 3584, 512, 152_064, tied=False, biased=True)
_QWEN_32B = Shape("", 5120, 27648, 64, 5120, 1024, 152_064, tied=False, biased=True)
_LLAMA_8B = Shape("", 4096, 14336, 32, 4096, 1024, 128_256, tied=False, biased=False)
_MISTRAL_7B = replace(_LLAMA_8B, vocabulary=32_000)
_LLEMMA_7B = Shape("", 4096, 11008, 32, 4096, 4096, 32_016, tied=False, biased=False)
KNOWN = {
    name: replace(shape, name=name)
    for name, shape in {
        "Qwen/Qwen2.5-7B-Instruct": _QWEN_7B,
        "Qwen/Qwen2.5-Math-7B-Instruct": _QWEN_7B,
        "Qwen/Qwen2.5-1.5B-Instruct": _QWEN_1B,
        "Qwen/Qwen2.5-Math-1.5B-Instruct": _QWEN_1B,
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": _QWEN_32B,
        "declare-lab/PathFinder-PRM-7B": _QWEN_7B,
        "Qwen/Qwen2.5-Math-PRM-7B": _QWEN_7B,
        "Qwen/Qwen2.5-Math-7B-PRM800K": _QWEN_7B,
        "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B": _QWEN_7B,
        "RLHFlow/Llama3.1-8B-PRM-Mistral-Data": _LLAMA_8B,
        "RLHFlow/Llama3.1-8B-PRM-Deepseek-Data": _LLAMA_8B,
        "peiyi9979/math-shepherd-mistral-7b-prm": _MISTRAL_7B,
        "GAIR/ReasonEval-7B": _MISTRAL_7B,
        "ScalableMath/llemma-7b-prm-prm800k-level-1to3-hf": _LLEMMA_7B,
    }.items()
}
"""The published models that the profiles name, so that memory can be planned before anything is fetched."""


def shape_of(config: Any, name: str) -> Shape:
    """Read a config.json; raises ``DataError`` naming a field that is missing or no positive integer."""

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


def fetched_shape(folder: Path) -> Shape:
    """The shape of a model folder that a stage is about to load."""
    return shape_of(open_model(folder).config.content, str(folder))


def planned_shape(name: str, sources: list[Source], root: Path = Path(".")) -> Shape:
    """The shape of the model ``models/<name>`` of the source catalogue, fetched or not.

    Searches the models that the project ships, ``KNOWN``, and the outputs of the download stage unless they belong to
    another profile. Raises ``DataError`` if none of these contains the model.
    """
    location = next((source.location for source in sources if source.name == f"models/{name}"), f"models/{name}")
    if (root / location / "config.json").is_file():
        return shape_of(read_json(root / location / "config.json"), location)
    if location in KNOWN:
        return KNOWN[location]
    if downloaded_sources(root).get(f"models/{name}", {}).get("location") == location:
        return replace(fetched_shape(root / MANIFEST.parent / "models" / name), name=location)
    raise DataError(f"{location}: its size is unknown until it is fetched; run `pathfinder run download` first")
