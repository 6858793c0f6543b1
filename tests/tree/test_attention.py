"""Calls that would read a tree as plain text are refused, and FlexAttention's mask needs little memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.bloom import BloomConfig, BloomForCausalLM

from ground.io import DataError
from pathfinder.core.prompts import VARIANTS
from pathfinder.models import toolchain
from pathfinder.tree import attention
from pathfinder.tree.attention import Bin, BinPlan, FlexPlan, read_logits, use_trees
from pathfinder.tree.layout import batch_trees
from pathfinder.tree.passes import Prompter
from tests.support.models import plain_tokenizer, queries_of, random_decoder, small_model


def test_a_switched_model_refuses_plain_calls() -> None:
    tokenizer = plain_tokenizer()
    model = small_model(tokenizer)
    use_trees(model)
    with pytest.raises(ValueError, match="tree"):
        model(input_ids=torch.ones(1, 4, dtype=torch.long))
    model.config.layer_types = ["sliding_attention", "full_attention"]
    model.config.name_or_path = "models/mixed"
    with pytest.raises(DataError, match=r"^models/mixed: has layers of full_attention, sliding_attention; choose"):
        use_trees(model)
    bloom = BloomForCausalLM(BloomConfig(hidden_size=8, n_layer=1, n_head=2, name_or_path="models/bloom"))
    with pytest.raises(DataError, match=r"^models/bloom: transformers has no replaceable attention for a bloom"):
        use_trees(bloom)


@pytest.mark.parametrize(("kind", "more"), [("qwen2", {}), ("phi", {"resid_pdrop": 0.5, "embd_pdrop": 0.5})])
def test_a_switched_model_has_no_dropout(kind: str, more: dict[str, float]) -> None:
    """Every label of a tree would otherwise be read after other losses than in a sample of its own."""
    tokenizer = plain_tokenizer()
    model = random_decoder(kind, tokenizer, attention_dropout=0.5, **more)
    use_trees(model)
    tree, _ = Prompter(tokenizer, VARIANTS["full"]).tree(queries_of("What is 1?", ["Let x = 3.", "so 9"]))
    batch = batch_trees([tree], "cascade").to("cpu", model.dtype)
    assert torch.equal(read_logits(model.train(), batch), read_logits(model.eval(), batch))


@pytest.mark.parametrize("used", ["flash_attention_2", "flash_attention_3", "sdpa", "eager", "flex_attention"])
@pytest.mark.parametrize("gradient", [True, False])
def test_other_back_ends_are_refused_by_name(used: str, gradient: bool) -> None:
    tokenizer = plain_tokenizer()
    model = small_model(tokenizer)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    tree, _ = prompter.tree(queries_of("What is $x^2$ for x = 3?", ["Let x = 3.", "so 9"]))
    batch = batch_trees([tree], "cascade").to("cpu", model.dtype)
    model.config._attn_implementation = used
    with torch.set_grad_enabled(gradient), pytest.raises(ValueError, match=f"attention '{used}' would treat a tree"):
        read_logits(model, batch)
    use_trees(model)
    assert read_logits(model, batch).isfinite().all()


@pytest.mark.parametrize("mask", [torch.ones(1, 4, dtype=torch.long), torch.ones(1, 1, 4, 4, dtype=torch.bool)])
def test_a_tree_with_another_mask_is_refused(mask: torch.Tensor) -> None:
    """A padding mask knows no branches; the plan is the only mask."""
    model = small_model(plain_tokenizer())
    use_trees(model)
    plan = BinPlan((Bin(4, 4),))
    ids = torch.ones(1, 4, dtype=torch.long)
    with pytest.raises(ValueError, match="no mask"):
        model(input_ids=ids, attention_mask={"full_attention": mask}, tree=plan, use_cache=False)
    with pytest.raises(ValueError, match="tree"):
        model(input_ids=ids, attention_mask=mask, use_cache=False)


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the largest number of elements of any tensor."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.elements = max(self.elements, out.numel())
        return out


@pytest.mark.parametrize("queries", [1, 128, 300])
def test_a_block_mask_is_made_of_a_part_of_the_queries_at_a_time(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = 500
    monkeypatch.setattr(attention, "_PAIRS", 128 * 512)
    key_order = torch.arange(keys)
    key_end = key_order + 1 + (key_order * 7919) % 200
    order = key_order[-queries:].clone()
    with Largest() as seen:  # type: ignore[no-untyped-call]
        made = FlexPlan(order, key_order, key_end).to("cpu", torch.float32).block_mask
    assert seen.elements <= 128 * 512
    whole = create_block_mask(
        lambda b, h, q, k: (key_order[k] <= order[q]) & (order[q] < key_end[k]), None, None, queries, keys, "cpu"
    )
    assert made.seq_lengths == whole.seq_lengths
    for mine, theirs in zip(made.as_tuple()[2:-1], whole.as_tuple()[2:-1], strict=True):
        assert torch.equal(mine, theirs) if isinstance(theirs, torch.Tensor) else mine == theirs


def test_the_kernel_is_compiled_for_more_cases_than_torch_allows_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past torch's limit of 8, every further case would compute all scores, without an error."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    monkeypatch.setattr(toolchain, "require_compiler", lambda: None)
    attend = attention._flex_attention.__wrapped__("cuda")
    for dtype in (torch.float32, torch.bfloat16):
        for queries, keys in ((300, 300), (40, 300), (1, 300), (50, 64), (1, 64)):
            mask = FlexPlan(torch.arange(queries), torch.arange(keys), torch.full((keys,), keys)).to("cpu", dtype)
            query, key = torch.zeros(1, 4, queries, 8, dtype=dtype), torch.zeros(1, 2, keys, 8, dtype=dtype)
            attend(query, key, key, block_mask=mask.block_mask, enable_gqa=True)
    assert len(graphs) > 8
