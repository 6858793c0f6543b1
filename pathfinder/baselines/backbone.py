"""Load the backbone and the head weights of a published PRM's model folder.

The backbone is one of transformers' own classes, chosen by ``model_type``. Head weights are read from the safetensors
by their published names. No code and no pickled weights from a folder are ever loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, LlamaModel, MistralModel, PreTrainedModel, Qwen2Model, Qwen3Model

from ground.io import DataError, read_json
from pathfinder.models.folders import OpenedModel
from pathfinder.models.model import device, read_model
from pathfinder.models.slices import Slices
from pathfinder.tree.attention import use_trees

MODEL_TYPES: dict[str, Any] = {"qwen2": Qwen2Model, "qwen3": Qwen3Model, "mistral": MistralModel, "llama": LlamaModel}
ADAPTER, TOKENIZER = "lora", "tokenizer"
"""The parts of a model folder that may come from a different repository: a LoRA adapter, as PEFT saves it, and
tokenizer files (``OpenedModel.part``)."""
_PREFIX = "base_model.model.model."
_MOST = 2**31


class Shards(Slices):
    """The tensors of a folder's safetensors files by name (``adapter.Weights``); raises ``DataError`` if none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if not any(folder.glob("*.safetensors")):
            raise DataError(
                f"{folder}: no safetensors weights; other formats are refused because they can run code. Convert them "
                "or use the repository's safetensors revision"
            )
        super().__init__(folder.glob("*.safetensors"))

    def __call__(self, name: str, rows: Sequence[int] | None = None) -> torch.Tensor:
        """The tensor, or some of its rows, in float32; raises ``DataError`` if the folder has no such tensor."""
        if name not in self:
            raise DataError(f"{self._folder}: no tensor {name}; use the published system's own model folder")
        if rows is None:
            return self.read(name).float()
        return torch.stack([self.read(name, row, row + 1)[0].float() for row in rows])


def load_backbone(model: OpenedModel, dtype: str, where: str | None = None) -> PreTrainedModel:
    """Load the transformer below the head, switched to trees and in evaluation mode; merge its LoRA adapter, if any.

    ``where`` is the device (default: ``device()``).

    Raises ``DataError`` for an unsupported architecture, missing weights, or an adapter that cannot be merged.
    """
    kind = model.config.content.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise DataError(f"{model.folder}: model type {kind!r:.80}; expected one of {', '.join(MODEL_TYPES)}")
    config = AutoConfig.from_pretrained(model.files, trust_remote_code=False)
    backbone = read_model(MODEL_TYPES[kind], model.files, dtype, config=config)
    if (adapter := model.part(ADAPTER)) is not None:
        _merge(backbone, adapter)
    use_trees(backbone)
    return backbone.to(where or device()).eval()  # type: ignore[no-any-return]


def adapter_scale(folder: Path) -> float:
    """The factor of an adapter's update, from its adapter_config.json.

    Raises ``DataError`` if the file is damaged or the adapter's kind is not supported.
    """
    path = folder / "adapter_config.json"
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise DataError(f"{path}: no JSON object; fetch the adapter's files again")
    supported = {
        "peft_type": "LORA",
        "fan_in_fan_out": False,
        "bias": "none",
        "modules_to_save": None,
        "use_dora": False,
    }
    unsupported = [name for name, value in supported.items() if settings.get(name, value) != value]
    unsupported += [name for name in ("rank_pattern", "alpha_pattern") if settings.get(name)]
    if unsupported:
        raise DataError(f"{path}: adapters with {', '.join(unsupported)} cannot be merged; merge it with PEFT")
    rank: Any = settings.get("r")
    alpha: Any = settings.get("lora_alpha")
    is_rooted = settings.get("use_rslora", False)
    is_valid = type(rank) is int and 0 < rank < _MOST and type(alpha) in (int, float) and 0 < alpha < _MOST
    if not is_valid or not isinstance(is_rooted, bool):
        raise DataError(
            f"{path}: r {rank!a:.40}, lora_alpha {alpha!a:.40}, use_rslora {is_rooted!a:.40}; expected a positive "
            "integer, a positive number and a truth value: fetch the adapter's files again"
        )
    return float(alpha / (rank**0.5 if is_rooted else rank))


@torch.no_grad()
def _merge(model: PreTrainedModel, folder: Path) -> None:
    """Add a LoRA adapter's update ``alpha / r * B A`` to the weights (Hu et al. 2021, stored as PEFT does)."""
    scale = adapter_scale(folder)
    shards = Shards(folder)
    for name in shards.names:
        stem, found, _ = name.partition(".lora_A.")
        if not found:
            if ".lora_B." not in name:
                raise DataError(
                    f"{folder}: tensor {name} is not part of a LoRA adapter; expected lora_A and lora_B only"
                )
            continue
        place = f"{stem.removeprefix(_PREFIX)}.weight"
        try:
            weight = model.get_parameter(place)
        except AttributeError as error:
            raise DataError(
                f"{folder}: tensor {name} fits no weight of the base model; use the base model that it was trained on"
            ) from error
        change = shards(name.replace(".lora_A.", ".lora_B.")) @ shards(name) * scale
        weight.copy_((weight.float() + change.to(weight.device)).to(weight.dtype))
