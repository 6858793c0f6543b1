"""The inference pass equals the model's own forward pass."""

from __future__ import annotations

import pytest
import torch

from pathfinder.core.prompts import VARIANTS
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.inference import KVCache, supports
from pathfinder.tree.layout import Backend, batch_trees
from pathfinder.tree.passes import Prompter
from tests.support.models import plain_tokenizer, queries_of, small_model


@pytest.mark.parametrize("backend", ["cascade", "flex"])
def test_logits_and_cache_equal_those_of_the_model(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = plain_tokenizer()
    model = small_model(tokenizer)
    use_trees(model)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    trees = [prompter.tree(queries_of(problem, ["Let x = 3.", "so 9"]))[0] for problem in ("What is $x^2$?", "Why?")]
    batch = batch_trees(trees, backend).to("cpu", model.dtype)
    caches: list[KVCache] = [{}, {}]
    with torch.no_grad():
        assert supports(model)
        got = read_logits(model, batch, caches[0])
        monkeypatch.setattr("pathfinder.tree.attention.supports", lambda model: False)
        wanted = read_logits(model, batch, caches[1])
    assert torch.allclose(got, wanted, atol=1e-5)
    assert caches[0].keys() == caches[1].keys() == {0, 1}
    for layer, pair in caches[0].items():
        for mine, theirs in zip(pair, caches[1][layer], strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5)


def test_gradients_and_other_decoders_use_the_model_itself() -> None:
    model = small_model(plain_tokenizer())
    assert not supports(model)
    with torch.no_grad():
        assert supports(model)
        assert not supports(torch.nn.Linear(1, 1))
        model.config.hidden_act = "gelu"
        assert not supports(model)
