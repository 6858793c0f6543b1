"""Scoring on a card, with compiled FlexAttention and cached trunks, equals the reference on the CPU.

`make gpu-day` runs this on a machine with a card (tests/campaigns/gpu_day.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ground.io import write_json
from pathfinder.core.steps import Solution, StepScore
from pathfinder.models import model
from pathfinder.models.folders import MODEL_FILE, open_model
from pathfinder.models.tokens import add_label_tokens
from pathfinder.prm.scoring import Scorer
from tests.support.models import plain_tokenizer, qwen_config, random_qwen, sides

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
SOLUTIONS = [
    Solution(f"s{n}", f"What is {n} + 5?", tuple(f"We add {t} to {n + t}, which is {n + 2 * t}." for t in range(n + 2)))
    for n in range(6)
]


@pytest.fixture
def prm(tmp_path: Path) -> Path:
    """A random PRM with seven query heads per key head and heads of 32, which Triton's kernels accept."""
    tokenizer = plain_tokenizer()
    add_label_tokens(tokenizer)
    config = qwen_config(tokenizer, len(tokenizer), **sides(224, 256, 2, 7, 1), initializer_range=0.2)
    random_qwen(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    write_json(tmp_path / MODEL_FILE, {"variant": "full"})
    return tmp_path


@pytest.mark.parametrize("stops", [False, True])
def test_a_card_scores_as_the_cpu_does(prm: Path, stops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: int, step: StepScore) -> bool:
        return stops and step.has_error

    got = Scorer(open_model(prm)).score(SOLUTIONS, stop=stop if stops else None)
    monkeypatch.setattr(model, "device", lambda: "cpu")
    want = Scorer(open_model(prm), backend="dense").score(SOLUTIONS, stop=stop if stops else None)
    assert [len(steps) for steps in got] == [len(steps) for steps in want]
    assert [[step.has_error for step in steps] for steps in got] == [[s.has_error for s in steps] for steps in want]
    for mine, reference in zip(got, want, strict=True):
        assert [s.reward for s in mine] == pytest.approx([s.reward for s in reference], abs=1e-3)
