"""An adapter trains only its targets and the label tokens, and resumes exactly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ground.io import DataError
from pathfinder.core.params import Lora
from pathfinder.training.checkpoints import newest_checkpoint
from pathfinder.training.network import merge, with_adapter
from pathfinder.training.trainer import fit
from tests.support.training import settings, small_setup


def test_an_adapter_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    """After a torn checkpoint the merged weights equal an uninterrupted run's. The base weights never change."""
    lora = Lora(rank=4, alpha=8, base_dtype="float32", targets=["q_proj", "v_proj"])
    model, prompter, examples = small_setup()
    base = {name: value.clone() for name, value in model.state_dict().items()}
    weights, tokens = [], []
    for _ in range(2):
        fresh, _, _ = small_setup()
        torch.manual_seed(0)
        network = with_adapter(fresh, lora, prompter.ids)
        fitted = fit(network, prompter, examples, settings(gradient_checkpointing=True), tmp_path)
        tokens.append(fitted.throughput["tokens"])
        weights.append({name: value.clone() for name, value in network.merge_and_unload().state_dict().items()})
        newest = newest_checkpoint(tmp_path)
        assert newest is not None
        (newest / "part-00000-of-00001.safetensors").write_bytes(b"torn")
    assert 0 < 3 * tokens[1] < tokens[0], "the steps up to the older checkpoint are not taken again"
    assert base.keys() == weights[0].keys()
    for name, value in base.items():
        assert torch.equal(weights[0][name], weights[1][name]), name
        has_changed = not torch.equal(value, weights[0][name])
        assert has_changed == any(
            part in name for part in ("q_proj.weight", "v_proj.weight", "embed_tokens", "lm_head")
        ), name
    rows = [prompter.ids.good, prompter.ids.bad, prompter.ids.mask]
    changed = (weights[0]["model.embed_tokens.weight"] != base["model.embed_tokens.weight"]).any(dim=1)
    assert set(changed.nonzero().flatten().tolist()) <= set(rows)
    with pytest.raises(DataError, match=r"the model has no module nowhere; train all weights, or"):
        with_adapter(model, Lora(rank=4, alpha=8, base_dtype="float32", targets=["nowhere"]), prompter.ids)


def test_a_frozen_base_in_bfloat16_learns_as_one_in_float32_does(tmp_path: Path) -> None:
    """Trained weights stay float32. Merging in float32 keeps the trained rows exactly."""
    losses, merged = [], []
    for base_dtype in (torch.float32, torch.bfloat16):
        model, prompter, examples = small_setup()
        torch.manual_seed(0)
        lora = Lora(rank=4, alpha=8, base_dtype="float32", targets=["q_proj", "v_proj"])
        network = with_adapter(model.to(torch.bfloat16).to(base_dtype), lora, prompter.ids)
        kinds = {parameter.dtype for parameter in network.parameters() if parameter.requires_grad}
        assert kinds == {torch.float32}
        rows = fit(network, prompter, examples, settings(dtype="bfloat16", epochs=4.0), tmp_path / str(base_dtype)).rows
        losses.append([row["loss"] for row in rows])
        merged.append(merge(network).state_dict())
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[1][-1] < losses[1][0]
    assert {tensor.dtype for tensor in merged[1].values()} == {torch.float32}
    assert not torch.equal(merged[1]["lm_head.weight"], merged[1]["lm_head.weight"].bfloat16().float()), "not rounded"
    for name, tensor in merged[0].items():
        assert torch.allclose(tensor, merged[1][name], atol=2e-3), name
