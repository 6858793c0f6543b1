"""Folders of another system, damaged folders, and LoRA adapters that cannot be merged are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ground.io import DataError
from pathfinder.baselines.adapter import AUTHORS
from pathfinder.baselines.registry import SYSTEMS
from pathfinder.baselines.scorer import BaselineScorer
from pathfinder.models.folders import open_model
from tests.baselines.model_folders import FOLDERS


def test_wrong_folders_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    def score(name: str, folder: Path) -> None:
        BaselineScorer(open_model(folder), SYSTEMS[name].methods[AUTHORS])

    with pytest.raises(DataError, match=r"no tensor v_head\.summary\.weight"):
        score("skywork", folders["math-psa"])
    with pytest.raises(DataError, match=r"splits 'ки' into \d tokens, expected 1"):
        score("math-shepherd", folders["skywork"])
    folder = tmp_path / "copy"
    FOLDERS["skywork"](folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(DataError, match="no safetensors weights; other formats are refused"):
        score("skywork", folder)
    FOLDERS["skywork"](folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"the weights have no norm\.weight"):
        score("skywork", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    with pytest.raises(DataError, match="model type 'gpt2'; expected one of qwen2, qwen3, mistral, llama"):
        score("skywork", folder)


def test_a_lora_adapter_that_cannot_be_merged_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "psa"
    FOLDERS["math-psa"](folder)
    settings_file = folder / "lora/adapter_config.json"
    good = json.loads(settings_file.read_text())
    for change in ({"use_dora": True}, {"bias": "all"}, {"rank_pattern": {"q_proj": 4}}):
        settings_file.write_text(json.dumps(good | change))
        with pytest.raises(DataError, match=f"adapters with {next(iter(change))} cannot be merged"):
            BaselineScorer(open_model(folder), SYSTEMS["math-psa"].methods[AUTHORS])
    settings_file.write_text(json.dumps(good))
    tensors = load_file(folder / "lora/adapter_model.safetensors")
    tensors["base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight"] = torch.zeros(8, 32)
    save_file(tensors, folder / "lora/adapter_model.safetensors")
    with pytest.raises(DataError, match="fits no weight of the base model"):
        BaselineScorer(open_model(folder), SYSTEMS["math-psa"].methods[AUTHORS])
