"""Calls that would read a tree as plain text are refused."""

from __future__ import annotations

import pytest
import torch

from pathfinder.core.prompts import VARIANTS
from pathfinder.tree.attention import Bin, BinPlan, read_logits, use_trees
from pathfinder.tree.layout import batch_trees
from pathfinder.tree.passes import Prompter
from tests.support.models import plain_tokenizer, queries_of, small_model


def test_a_switched_model_refuses_plain_calls() -> None:
    tokenizer = plain_tokenizer()
    model = small_model(tokenizer)
    use_trees(model)
    with pytest.raises(ValueError, match="tree"):
        model(input_ids=torch.ones(1, 4, dtype=torch.long))
    model.config.layer_types = ["sliding_attention", "full_attention"]
    with pytest.raises(ValueError, match="sliding"):
        use_trees(model)


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
