# ruff: noqa: S106 - tokens of a vocabulary
"""Tiny random models of the right architecture, in folders as the nine systems are published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

_HIDDEN = 32
_SIZES: dict[str, Any] = {
    "hidden_size": _HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
LLAMA_CHAT = (
    "{{ bos_token }}{{ '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\n"
    "Today Date: 26 Jul 2024\\n\\n<|eot_id|>' }}{% for message in messages %}{{ '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
)
QWEN_CHAT = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
)


def sentencepiece(*, pad: str | None = None) -> PreTrainedTokenizerFast:
    """As Llama's and Mistral's: a space before the text, spaces as U+2581, bytes for what is not in the vocabulary."""
    merges = [("▁", "к"), ("▁к", "и"), ("▁", "+"), ("▁", "-"), ("t", "e"), ("te", "p"), ("S", "tep"), ("▁", "Step")]
    vocabulary = {token: place for place, token in enumerate(("<unk>", "<s>", "</s>"))}
    vocabulary |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    letters = [chr(code) for code in range(33, 127)] + ["▁", "к", "и"]
    for token in (*letters, *(left + right for left, right in merges)):
        vocabulary.setdefault(token, len(vocabulary))
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    settings = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": pad}
    return PreTrainedTokenizerFast(tokenizer_object=core, **settings)  # type: ignore[no-untyped-call]


def byte_level(special: tuple[str, ...], merges: list[tuple[str, str]], **settings: Any) -> PreTrainedTokenizerFast:
    """As Qwen2.5's and Llama 3's: bytes under a regular expression."""
    vocabulary = {token: place for place, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    split = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated")
    core.normalizer = normalizers.NFC()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return PreTrainedTokenizerFast(tokenizer_object=core, **settings)  # type: ignore[no-untyped-call]


def qwen_tokenizer(*extra: str) -> PreTrainedTokenizerFast:
    """Qwen2.5's, with five newlines behind a space as one token."""
    run = [("Ġ" + "Ċ" * n, "Ċ") for n in range(5)] + [("Ġ", "+"), ("Ġ", "-"), ("h", "e"), ("Ġ", "t"), ("Ġt", "he")]
    tokenizer = byte_level(
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *extra),
        run,
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.chat_template = QWEN_CHAT
    return tokenizer


def llama3_tokenizer() -> PreTrainedTokenizerFast:
    """Llama 3.1's, with its chat template's shape."""
    special = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    merges = [("Ċ", "Ċ"), ("h", "e"), ("Ġ", "t"), ("Ġt", "he")]
    tokenizer = byte_level(special, merges, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
    tokenizer.chat_template = LLAMA_CHAT
    return tokenizer


_MODELS: dict[str, tuple[Any, Any]] = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}


def _save(
    folder: Path,
    kind: str,
    tokenizer: PreTrainedTokenizerFast,
    heads: dict[str, tuple[int, ...]] | None = None,
    keep_lm_head: bool = True,
    **settings: Any,
) -> None:
    """Weights, configuration and tokenizer; ``heads`` are saved with the backbone's tensors.

    The matrices are random, the same on every machine and under every release, and exact in bfloat16.
    """
    config, architecture = _MODELS[kind]
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False}
    model = architecture(config(vocab_size=len(tokenizer) + 5, **_SIZES, **ids))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    tensors = load_file(folder / "model.safetensors")
    if not keep_lm_head:
        del tensors["lm_head.weight"]
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if tensor.ndim > 1} | (heads or {})
    rng = np.random.Generator(np.random.Philox(len(folder.name)))
    drawn = {name: torch.from_numpy(rng.normal(0.0, 0.3, shapes[name])) for name in sorted(shapes)}
    tensors |= {name: tensor.bfloat16().float() for name, tensor in drawn.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def math_shepherd(folder: Path) -> None:
    """A Mistral language model with its sliding window."""
    _save(folder, "mistral", sentencepiece(), sliding_window=2048)


def math_psa(folder: Path) -> None:
    """A Qwen2 language model with a LoRA adapter in its folder ``lora``."""
    _save(folder, "qwen2", qwen_tokenizer())
    torch.manual_seed(0)
    lora = folder / "lora"
    lora.mkdir()
    tensors = {}
    for layer in range(_SIZES["num_hidden_layers"]):
        for target, rows in (("q_proj", _HIDDEN), ("v_proj", _HIDDEN // 2)):
            stem = f"base_model.model.model.layers.{layer}.self_attn.{target}"
            tensors[f"{stem}.lora_A.weight"] = torch.randn(8, _HIDDEN) * 0.1
            tensors[f"{stem}.lora_B.weight"] = torch.randn(rows, 8) * 0.1
    save_file(tensors, lora / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 8, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"], "bias": "none"}
    settings |= {"task_type": "CAUSAL_LM", "base_model_name_or_path": None, "fan_in_fan_out": False}
    (lora / "adapter_config.json").write_text(json.dumps(settings))


def rlhflow(folder: Path) -> None:
    """A Llama 3.1 language model that is sure of ``+`` or against it, so that its share of the vocabulary varies."""
    tokenizer = llama3_tokenizer()
    _save(folder, "llama", tokenizer)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"][tokenizer.encode("+")] *= 12
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def skywork(folder: Path) -> None:
    """A Qwen2 language model with a value head."""
    _save(folder, "qwen2", qwen_tokenizer(), {"v_head.summary.weight": (1, _HIDDEN), "v_head.summary.bias": (1,)})


def reasoneval(folder: Path) -> None:
    """A Mistral backbone with a score head; the tokenizer pads with its beginning token."""
    heads = {"score_head.weight": (3, _HIDDEN), "score_head.bias": (3,)}
    tokenizer = sentencepiece(pad="<s>")
    _save(folder, "mistral", tokenizer, heads, keep_lm_head=False, score_dimension=3, use_bias=True)


def llemma(folder: Path) -> None:
    """A Llama language model whose mean logit is the score."""
    _save(folder, "llama", sentencepiece())


def qwen(folder: Path) -> None:
    """A Qwen2 backbone with two layers of token classification, and a pointer to code that must not be run."""
    heads = {"score.0.weight": (_HIDDEN, _HIDDEN), "score.0.bias": (_HIDDEN,)}
    heads |= {"score.2.weight": (2, _HIDDEN), "score.2.bias": (2,)}
    code = {"auto_map": {"AutoModel": "modeling_qwen2_rm.Qwen2ForProcessRewardModel"}}
    _save(folder, "qwen2", qwen_tokenizer("<extra_0>"), heads, keep_lm_head=False, num_labels=2, **code)
    (folder / "modeling_qwen2_rm.py").write_text("raise SystemExit('the code of a model folder was run')\n")


FOLDERS: dict[str, Callable[[Path], None]] = {
    "math-shepherd": math_shepherd,
    "math-psa": math_psa,
    "rlhflow-mistral": rlhflow,
    "rlhflow-deepseek": rlhflow,
    "skywork": skywork,
    "reasoneval": reasoneval,
    "llemma": llemma,
    "qwen-prm": qwen,
    "qwen-prm800k": qwen,
}
