"""The pretraining command: it learns, it repeats, and it goes on where it was ended."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from stages import pretrain
from stages.core import tiny
from stages.core.io import sha256_file
from stages.core.pretraining import Plan, fit, orthogonalise, rate_share
from stages.core.world_lessons import Lesson, Scribe, arithmetic_drill

PLAN = Plan(steps=12, tokens=512, rate=0.003)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny.build_tokenizer()


def _model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    return tiny.build_model(tokenizer, hidden=32, layers=1, heads=2, feed=64, seed=1)


def _train(
    tokenizer: PreTrainedTokenizerFast, checkpoint: Path, steps_before_the_end: int | None = None
) -> tuple[Qwen2ForCausalLM, list[float]]:
    scribe, losses, model = Scribe(tokenizer), list[float](), _model(tokenizer)

    def lessons(block: int) -> Iterator[Lesson]:
        if steps_before_the_end is not None and block * 4 >= steps_before_the_end:
            raise KeyboardInterrupt
        rng = random.Random(f"test/{block}")
        while True:
            yield arithmetic_drill(scribe, rng)

    fit(model, lessons, PLAN, checkpoint, lambda _, loss: losses.append(loss), every=4)
    return model, losses


def test_an_ended_run_comes_to_the_same_weights(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    whole, _ = _train(tokenizer, tmp_path / "whole.safetensors")
    with pytest.raises(KeyboardInterrupt):
        _train(tokenizer, tmp_path / "ended.safetensors", steps_before_the_end=8)
    resumed, _ = _train(tokenizer, tmp_path / "ended.safetensors")
    fresh = _model(tokenizer)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    assert not torch.equal(whole.model.embed_tokens.weight, fresh.model.embed_tokens.weight)


def test_updates_are_orthogonalised() -> None:
    torch.manual_seed(0)
    for shape in ((3, 24, 64), (2, 64, 24)):
        singular = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert singular.min() > 0.5 and singular.max() < 1.5  # noqa: PT018


def test_the_rate_warms_up_and_decays() -> None:
    assert [rate_share(step, 1000) for step in (50, 100, 600, 800, 1000)] == [0.5, 1.0, 1.0, 0.5, 0.0]


def test_command_writes_models_that_load(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Plan(steps=3, tokens=512, rate=0.003)
    recipe = pretrain.Recipe(hidden=32, layers=1, heads=2, feed=64, base=short, refined=short, words=short, judge=short)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrain, "Recipe", lambda: recipe)
    pretrain.main(["base", "judge"])
    models = tmp_path / "data" / "models"
    digests = {name: sha256_file(models / name / "model.safetensors") for name in ("base", "judge")}
    assert digests["base"] != digests["judge"]
    pretrain.main(["base"])
    assert sha256_file(models / "base" / "model.safetensors") == digests["base"]
    with pytest.raises(SystemExit, match="unknown part 'bass'"):
        pretrain.main(["bass"])
