"""Trees equal separate prompts in every declared architecture, and in decoders that transformers runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from pathfinder.core.prompts import VARIANTS
from pathfinder.models.architectures import ARCHITECTURES
from pathfinder.models.shapes import shape_of
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.inference import supports
from pathfinder.tree.layout import batch_trees
from pathfinder.tree.passes import Prompter
from tests.support.models import plain_tokenizer, queries_of, separate_logits, sides

UNDECLARED = ("mistral", "qwen3")
STEPS = ["Let x = 3.", "so $x^2$ = 9", "The answer is 9."]


def random_model(model_type: str, tokenizer: Any) -> Any:
    """A small random decoder with grouped keys and weights large enough for attention to matter."""
    shape = sides(32, 48, 2, 4, 2) | {"head_dim": 8, "initializer_range": 0.2, "vocab_size": len(tokenizer) + 16}
    config = AutoConfig.for_model(model_type, **shape, tie_word_embeddings=False, sliding_window=None)
    build: Any = AutoModelForCausalLM.from_config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = build(config)
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.2)
    return made.eval()


@pytest.mark.parametrize("model_type", [*ARCHITECTURES, *UNDECLARED])
def test_a_tree_equals_separate_prompts(model_type: str) -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model, queries = random_model(model_type, tokenizer), queries_of("What is $x^2$?", STEPS)
    tree, readings = prompter.tree(queries)
    wanted = []
    for reading in readings:
        (mine,) = [step for step in prompter.passes if reading.mark in step.asked]
        query = queries[reading.query]
        both = separate_logits(model, tokenizer, prompter, query, reading.given, mine.asked)
        wanted.append(both[mine.asked.index(reading.mark)])
    use_trees(model)
    batch = batch_trees([tree]).to("cpu", model.dtype)
    trained = read_logits(model, batch)
    with torch.no_grad():
        assert supports(model) == (model_type in ARCHITECTURES)
        scored = read_logits(model, batch)
    for got in (trained, scored):
        assert float((got - torch.stack(wanted)).abs().max()) < 1e-4
    assert float(scored.std()) > 0.1


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_a_shape_counts_every_parameter(model_type: str) -> None:
    model = random_model(model_type, plain_tokenizer())
    assert shape_of(model.config.to_dict(), "small").parameters == sum(p.numel() for p in model.parameters())
