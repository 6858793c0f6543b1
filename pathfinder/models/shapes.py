"""Sizes of models, from their config.json: of one that is here, or of a published one before it is fetched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError, read_json
from pathfinder.core.params import Lora, Source


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model's config.json says about its size (Qwen2, Llama and their like)."""

    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    vocabulary: int
    tied: bool
    biased: bool

    @property
    def matrices(self) -> dict[str, int]:
        """Parameters of each of a layer's matrices, by module name."""
        wide, narrow = self.heads * self.head_size, self.key_heads * self.head_size
        return {
            "q_proj": self.hidden * wide,
            "k_proj": self.hidden * narrow,
            "v_proj": self.hidden * narrow,
            "o_proj": self.hidden * wide,
            "gate_proj": self.hidden * self.inner,
            "up_proj": self.hidden * self.inner,
            "down_proj": self.hidden * self.inner,
        }

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        biases = (self.heads + 2 * self.key_heads) * self.head_size if self.biased else 0
        return sum(self.matrices.values()) + biases + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        ends = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * self.layer + ends + self.hidden

    @property
    def keys_and_values(self) -> int:
        """Numbers that a token leaves in the cache."""
        return 2 * self.layers * self.key_heads * self.head_size

    def adapter(self, lora: Lora) -> int:
        """Parameters that a LoRA adapter trains (the label tokens' rows included)."""
        wide, narrow = self.heads * self.head_size, self.key_heads * self.head_size
        sides = {
            "q_proj": self.hidden + wide,
            "k_proj": self.hidden + narrow,
            "v_proj": self.hidden + narrow,
            "o_proj": self.hidden + wide,
        }
        per_layer = sum(lora.rank * sides.get(name, self.hidden + self.inner) for name in lora.targets)
        return self.layers * per_layer + 6 * self.hidden


_QWEN = {"model_type": "qwen2", "vocab_size": 152064, "tie_word_embeddings": False}
_QWEN_7B = _QWEN | {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}
_QWEN_32B = _QWEN | {
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_hidden_layers": 64,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
}
_QWEN_1B = _QWEN | {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-7B-Instruct": _QWEN_7B,
    "Qwen/Qwen2.5-Math-7B-Instruct": _QWEN_7B,
    "Qwen/Qwen2.5-1.5B-Instruct": _QWEN_1B,
    "Qwen/Qwen2.5-Math-1.5B-Instruct": _QWEN_1B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": _QWEN_32B,
}
"""The published config.json of the models that the profiles name: a plan can be made before anything is fetched."""


def shape_of(config: dict[str, Any], name: str) -> Shape:
    """Read a config.json; raises ``DataError`` naming what it lacks."""
    try:
        heads = int(config["num_attention_heads"])
        return Shape(
            hidden=int(config["hidden_size"]),
            inner=int(config["intermediate_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            key_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or config["hidden_size"] // heads),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            biased=config.get("model_type") == "qwen2",
        )
    except KeyError as error:
        raise DataError(
            f"{name}: its config.json has no {error.args[0]}; sizes of such models are not known"
        ) from error


def fetched_shape(folder: Path) -> tuple[str, Shape]:
    """Title and shape of a model folder that a stage is about to load."""
    from pathfinder.models.model import resolve  # seconds; leads from a hub model's name to the hub's cache

    return str(folder), shape_of(read_json(resolve(folder) / "config.json"), str(folder))


def planned_shape(name: str, sources: list[Source], root: Path = Path(".")) -> tuple[str, Shape]:
    """Title and shape of the model ``models/<name>`` of the source catalogue, fetched or not.

    Looks where the project ships it, among ``KNOWN``, then where the download stage put it, unless what lies there is
    another profile's; raises ``DataError`` for one that is nowhere yet.
    """
    title = next((source.location for source in sources if source.name == f"models/{name}"), f"models/{name}")
    if (root / title / "config.json").is_file():
        return title, shape_of(read_json(root / title / "config.json"), title)
    if title in KNOWN:
        return title, shape_of(KNOWN[title], title)
    raw = root / "artifacts/raw"
    manifest = read_json(raw / "manifest.json") if (raw / "manifest.json").is_file() else {}
    if manifest.get(f"models/{name}", {}).get("location") == title:
        return title, fetched_shape(raw / "models" / name)[1]
    raise DataError(f"{title}: its size is not known before it is here; run `pathfinder run download` first")
