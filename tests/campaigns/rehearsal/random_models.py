"""Write the files of a random model: weights, configuration and tokenizer, as its Hub repository has them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from ground.io import read_json, write_json
from tests.baselines.model_folders import FOLDERS
from tests.campaigns.rehearsal.models import Published
from tests.campaigns.rehearsal.tokenizers import tokenizer_folder

_LAYERS, _INNER, _HEAD = 2, 48, 2
_SHARD = "20MB"
_LABELS = [151_665, 151_666]
"""The ids that <+> and <-> get: the first after Qwen's own tokens."""
_WITHOUT_TOKENIZER = ("math-shepherd", "llemma")

logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def write_baseline(folder: Path, system: str, part: str) -> None:
    """A published PRM, or its tokenizer: two of the authors publish none that can be read without SentencePiece."""
    FOLDERS[system](folder)
    tokenizer = [path for path in folder.iterdir() if "token" in path.name]
    for path in folder.iterdir():
        if (part == "tokenizer") != (path in tokenizer) and (part or system in _WITHOUT_TOKENIZER):
            path.unlink()


def write_lora(folder: Path, shape: Published) -> None:
    """Math-PSA's adapter, below its upstream folder."""
    target = folder / "checkpoint-2127"
    target.mkdir()
    width = shape.heads * _HEAD
    tensors = {}
    for layer in range(_LAYERS):
        for module, rows in (("q_proj", width), ("v_proj", shape.keys * _HEAD)):
            stem = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            tensors[f"{stem}.lora_A.weight"] = torch.randn(8, width) * 0.1
            tensors[f"{stem}.lora_B.weight"] = torch.randn(rows, 8) * 0.1
    save_file(tensors, target / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 8, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"], "bias": "none"}
    settings |= {"task_type": "CAUSAL_LM", "base_model_name_or_path": None, "fan_in_fan_out": False}
    write_json(target / "adapter_config.json", settings)


@torch.no_grad()
def _prefer_labels(network: Any) -> None:
    """Make <+> and <-> the likeliest tokens everywhere, as in a trained PRM: the published rules expect one of them.

    The first number of the residual stream becomes large and constant, and only the rows of the two labels, which are
    spare rows of the base model, read it.
    """
    network.model.embed_tokens.weight[:, 0] = 1.0
    network.lm_head.weight[_LABELS, 0] = 3.0


def write_qwen(folder: Path, shape: Published) -> None:
    """A causal language model of that shape with its tokenizer."""
    torch.manual_seed(shape.heads)
    bos, eos = (151646, 151643) if shape.tokenizer == "deepseek-r1" else (151643, 151645)
    config = Qwen2Config(
        vocab_size=shape.rows,
        hidden_size=shape.heads * _HEAD,
        intermediate_size=_INNER,
        num_hidden_layers=_LAYERS,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.keys,
        max_position_embeddings=shape.positions,
        tie_word_embeddings=shape.tied,
        bos_token_id=bos,
        eos_token_id=eos,
        rms_norm_eps=1e-6,
    )
    network: Any = Qwen2ForCausalLM(config)
    _prefer_labels(network)
    model = network.to(torch.bfloat16)
    tokens = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": 151643}
    model.generation_config = GenerationConfig.from_dict(tokens | shape.sampling)
    model.save_pretrained(folder, max_shard_size=_SHARD)
    written = read_json(folder / "config.json")
    for key in ("rope_parameters", "layer_types", "dtype", "pad_token_id"):  # older versions wrote the published files
        written.pop(key, None)
    theta = 10_000.0 if shape.positions == 4096 else 1_000_000.0
    write_json(folder / "config.json", written | {"rope_theta": theta, "torch_dtype": "bfloat16"})
    for file in tokenizer_folder(shape.tokenizer).iterdir():
        shutil.copyfile(file, folder / file.name)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n", encoding="utf-8")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs\n", encoding="utf-8")
