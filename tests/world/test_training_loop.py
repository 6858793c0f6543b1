"""The training loop: it resumes to the same weights, and a branch sees only its trunk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from world import tiny
from world.lessons import Encoder, Lesson, Piece, arithmetic_drill, check_lesson
from world.recipes import Phase
from world.story import LEVELS, Scale, sample_problem
from world.training_loop import collate, fit, orthogonalise, rate_share, weighted_loss

PHASE = Phase(steps=12, tokens=512, rate=0.003)


def _model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    return tiny.build_model(tokenizer, hidden=32, layers=1, heads=2, feed=64, seed=1)


def _train(tokenizer: PreTrainedTokenizerFast, checkpoint: Path, interrupt_at: int | None = None) -> Qwen2ForCausalLM:
    encoder, model = Encoder(tokenizer), _model(tokenizer)

    def lessons(block: int) -> Iterator[Lesson]:
        if interrupt_at is not None and block * 4 >= interrupt_at:
            raise KeyboardInterrupt
        rng = random.Random(f"test/{block}")
        while True:
            yield arithmetic_drill(encoder, rng, Scale())

    fit(model, lessons, PHASE, checkpoint, every=4)
    return model


def test_an_interrupted_run_resumes_to_the_same_weights(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    whole = _train(tokenizer, tmp_path / "whole.safetensors")
    with pytest.raises(KeyboardInterrupt):
        _train(tokenizer, tmp_path / "interrupted.safetensors", interrupt_at=8)
    resumed = _train(tokenizer, tmp_path / "interrupted.safetensors")
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


def test_a_branch_sees_its_trunk_and_itself_only(tokenizer: PreTrainedTokenizerFast) -> None:
    """The loss of a lesson equals the weighted loss of its branches, each in a lesson of its own."""
    encoder, rng = Encoder(tokenizer), random.Random(6)
    model = tiny.build_model(tokenizer, hidden=32, layers=2, heads=2, feed=64, seed=1)
    lesson = check_lesson(encoder, rng, sample_problem(rng, LEVELS["math"]), 0.0, False)
    apart, weight = torch.zeros(()), 0.0
    trunk = lesson.trunk
    for attached, piece in ((len(trunk.ids), Piece((), (), ())), *lesson.branches):
        weights = tuple(0.0 for _ in trunk.ids[:attached]) if piece.ids else trunk.weights
        joined = Piece(trunk.ids[:attached], weights, trunk.targets[:attached]) + piece
        share = sum(joined.weights)
        if share:
            apart = apart + share * weighted_loss(model, collate([Lesson(joined)], 0))
            weight += share
    together = weighted_loss(model, collate([lesson], 0))
    assert together.item() == pytest.approx(apart.item() / weight, rel=1e-5)
