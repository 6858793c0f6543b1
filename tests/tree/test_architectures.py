"""Trees equal separate prompts in every declared architecture, and in decoders that transformers runs."""

from __future__ import annotations

import pytest
import torch

from pathfinder.core.prompts import VARIANTS
from pathfinder.models.architectures import ARCHITECTURES, shape_of
from pathfinder.models.decoder import supports
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.layout import batch_trees
from pathfinder.tree.passes import Prompter
from tests.support.models import plain_tokenizer, queries_of, random_decoder, separate_logits

UNDECLARED = ("mistral", "qwen3")
STEPS = ["Let x = 3.", "so $x^2$ = 9", "The answer is 9."]


@pytest.mark.parametrize("model_type", [*ARCHITECTURES, *UNDECLARED])
def test_a_tree_equals_separate_prompts(model_type: str) -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model, queries = random_decoder(model_type, tokenizer), queries_of("What is $x^2$?", STEPS)
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
    model = random_decoder(model_type, plain_tokenizer())
    assert shape_of(model.config.to_dict(), "small").parameters == sum(p.numel() for p in model.parameters())
