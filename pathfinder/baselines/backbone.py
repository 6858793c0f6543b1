"""Backbones and head weights of other people's model folders.

The backbone is one of transformers' own classes, chosen by ``model_type``; heads are read from the safetensors by their
published names. No code and no pickled weights of a folder are ever loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, LlamaModel, MistralModel, PreTrainedModel, Qwen2Model

from pathfinder.core.io import DataError, read_json
from pathfinder.models.model import DTYPES, device
from pathfinder.tree.attention import use_trees

CLASSES: dict[str, Any] = {"qwen2": Qwen2Model, "mistral": MistralModel, "llama": LlamaModel}
ADAPTER = "lora"
"""Folder, inside a base model's, of a LoRA adapter as PEFT saves it."""
_PREFIX = "base_model.model.model."


class Shards:
    """The tensors of a folder's safetensors files by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise DataError(
                f"{folder}: no safetensors weights; other formats are refused (they can run code). Convert them, or "
                "take the repository's safetensors revision"
            )
        self._file: dict[str, Path] = {}
        for file in files:
            with safe_open(file, framework="pt") as shard:
                self._file |= dict.fromkeys(shard.keys(), file)

    def __contains__(self, name: str) -> bool:
        """Is there a tensor of that name?"""
        return name in self._file

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._file)

    def __call__(self, name: str, rows: Sequence[int] | None = None) -> torch.Tensor:
        """The tensor, or some of its rows, in float32; raises ``DataError`` where there is none."""
        if name not in self._file:
            raise DataError(f"{self._folder}: no tensor {name}; is this the system's own folder?")
        with safe_open(self._file[name], framework="pt") as shard:
            if rows is None:
                return shard.get_tensor(name).float()  # type: ignore[no-any-return]
            part = shard.get_slice(name)
            return torch.stack([part[row].float() for row in rows])


def load_backbone(folder: Path, dtype: str) -> PreTrainedModel:
    """The transformer below the head, switched to trees, in evaluation mode; a LoRA adapter is merged in float32."""
    kind = read_json(folder / "config.json").get("model_type")
    if kind not in CLASSES:
        raise DataError(f"{folder}: model type {kind!r}; expected one of {', '.join(CLASSES)}")
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    model, found = CLASSES[kind].from_pretrained(
        folder,
        config=config,
        dtype=DTYPES[dtype],
        use_safetensors=True,
        local_files_only=True,
        output_loading_info=True,
    )
    if found["missing_keys"]:
        raise DataError(f"{folder}: weights lack {', '.join(sorted(found['missing_keys'])[:3])} …; fetch them again")
    if (folder / ADAPTER).is_dir():
        _merge(model, folder / ADAPTER)
    use_trees(model)
    return model.to(device()).eval()  # type: ignore[no-any-return]


def longest(config: Any) -> int:
    """Tokens that a prompt may have; a sliding window counts as a limit, since trees attend to everything before."""
    return int(min(config.max_position_embeddings, getattr(config, "sliding_window", None) or 2**31))


@torch.no_grad()
def _merge(model: PreTrainedModel, folder: Path) -> None:
    """Add a LoRA adapter's products to the weights: ``alpha / r * B A`` (Hu et al. 2021, as PEFT stores it)."""
    settings = read_json(folder / "adapter_config.json")
    kept = {"peft_type": "LORA", "fan_in_fan_out": False, "bias": "none", "modules_to_save": None, "use_dora": False}
    odd = [name for name, value in kept.items() if settings.get(name, value) != value]
    odd += [name for name in ("rank_pattern", "alpha_pattern") if settings.get(name)]
    if odd:
        raise DataError(f"{folder}/adapter_config.json: cannot merge an adapter with its own {', '.join(odd)}")
    rank = settings["r"]
    scale = settings["lora_alpha"] / (rank**0.5 if settings.get("use_rslora") else rank)
    shards = Shards(folder)
    for name in shards.names():
        stem, found, _ = name.partition(".lora_A.")
        if not found:
            if ".lora_B." not in name:
                raise DataError(f"{folder}: tensor {name} is no part of a LoRA adapter")
            continue
        place = f"{stem.removeprefix(_PREFIX)}.weight"
        try:
            weight = model.get_parameter(place)
        except AttributeError as error:
            raise DataError(f"{folder}: tensor {name} fits no weight of the base model") from error
        change = shards(name.replace(".lora_A.", ".lora_B.")) @ shards(name) * scale
        weight.copy_((weight.float() + change.to(weight.device)).to(weight.dtype))
