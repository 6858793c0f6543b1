"""Random models in the shapes of published ones, and trees of real problems for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from infra.gpu_day.day import Day
from pathfinder.benchmarks.readers import read_processbench
from pathfinder.core.prompts import VARIANTS
from pathfinder.models.folders import resolve
from pathfinder.models.shapes import KNOWN, Shape
from pathfinder.models.tokens import add_label_tokens, load_tokenizer
from pathfinder.tree.passes import Prompter, Query

_HEAD = 128
"""Width of a head, of all published models here and of their tiny substitutes."""
TINY = Shape("a tiny model", 256, 256, 2, 256, 128, 4096, tied=False, biased=True)
"""What stands for any model in a rehearsal."""


def shape_named(day: Day, name: str) -> Shape:
    """The shape of a published model, or a tiny one in a rehearsal."""
    return TINY if day.rehearsal else KNOWN[name]


def random_model(shape: Shape, device: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    """A Qwen2 of this shape with random weights in ``dtype`` on ``device``, in evaluation mode."""
    config = Qwen2Config(
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.query_width // _HEAD,
        num_key_value_heads=shape.key_width // _HEAD,
        vocab_size=shape.vocabulary,
        max_position_embeddings=32768,
        tie_word_embeddings=shape.tied,
        initializer_range=0.05,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model: Any = Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval()


def prompter_of(day: Day) -> Prompter:
    """The prompts of the full variant with the tokenizer of the day's base model."""
    tokenizer = load_tokenizer(resolve(day.work / "artifacts/raw/models/base"))
    add_label_tokens(tokenizer)
    return Prompter(tokenizer, VARIANTS["full"])


def problems(day: Day, per_set: int) -> list[list[Query]]:
    """The steps of ``per_set`` solutions of each ProcessBench subset."""
    folder: Path = day.work / "artifacts/raw/processbench"
    items = read_processbench(folder, per_set).items
    return [
        [Query(f"{item.id}-{t}", item.problem, tuple(item.steps[:t]), step) for t, step in enumerate(item.steps)]
        for item in items
    ]
