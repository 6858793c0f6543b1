"""The learning curve: read at fixed steps from held-out trees, the same after a torn checkpoint, without a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pathfinder.training import training
from pathfinder.training.trainer import fit, sound_checkpoint
from pathfinder.tree import attention
from stages.train import _log
from tests.support.models import plain_tokenizer
from tests.training.test_training import settings, start

EPOCHS = {"epochs": 8.0}


def test_held_out_trees_are_read_at_the_points_and_leave_no_trace(tmp_path: Path) -> None:
    model, prompter, examples = start(plain_tokenizer())
    without = fit(model, prompter, examples[2:], settings(**EPOCHS), tmp_path / "without").rows
    other, prompter, examples = start(plain_tokenizer())
    rows = fit(other, prompter, examples[2:], settings(**EPOCHS), tmp_path / "with", examples[:2]).rows
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert [{key: value for key, value in row.items() if not key.startswith("held_out_")} for row in rows] == without
    steps = [row["step"] for row in rows if "held_out_loss_math" in row]
    assert steps[0] == 1
    assert steps[-1] == len(rows)
    assert 1 < len(steps) <= 11
    last = training.evaluate(other, examples[:2], prompter, 4096)
    assert {label: rows[-1][f"held_out_loss_{label}"] for label in last} == {k: v["loss"] for k, v in last.items()}
    newest = sound_checkpoint(tmp_path / "with")
    assert newest is not None
    (newest / "model.safetensors").write_bytes(b"torn")
    again, prompter, examples = start(plain_tokenizer())
    assert fit(again, prompter, examples[2:], settings(**EPOCHS), tmp_path / "with", examples[:2]).rows == rows


def test_the_loss_of_a_label_is_its_cross_entropy_over_the_two_marks() -> None:
    model, prompter, examples = start(plain_tokenizer())
    found = training.evaluate(model, examples, prompter, 4096)
    losses: dict[int, list[float]] = {}
    for batch, targets in training.batches(examples, 300):
        logits = attention.read_logits(model, batch.to("cpu", model.dtype)).detach().double()
        pair = torch.log_softmax(logits[:, [prompter.ids.bad, prompter.ids.good]], dim=1)
        for place, (mark, positive) in enumerate(zip(targets.marks, targets.positive, strict=True)):
            losses.setdefault(int(mark), []).append(-float(pair[place, int(positive)]))
    for mark, label in enumerate(prompter.labels):
        assert found[label]["loss"] == pytest.approx(np.mean(losses[mark]), rel=1e-6)


def test_a_thinned_log_keeps_every_point_of_the_curve() -> None:
    rows = [{"step": step, "loss": float(step), "learning_rate": 0.1} for step in range(1, 1001)]
    for step in (1, 500, 1000):
        rows[step - 1]["held_out_loss_math"] = 1 / step
    log = _log(rows)
    assert len(log) <= 400
    points = {row["step"]: row["held_out_loss_math"] for row in log if "held_out_loss_math" in row}
    assert points == {3: 1.0, 501: 1 / 500, 1000: 1 / 1000}
    assert log[0]["loss"] == 2.0
