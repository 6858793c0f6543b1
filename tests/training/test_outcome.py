"""The figures, and a log that is shortened without losing a point of the learning curve."""

from __future__ import annotations

from pathlib import Path

import torch

from ground.io import read_json
from pathfinder.core.records import USES
from pathfinder.models.tokens import load_tokenizer
from pathfinder.training.outcome import figures, save_model, thin_log, uses
from pathfinder.training.trainer import plan_of
from tests.support.models import plain_tokenizer
from tests.support.training import LEARNT, settings, small_setup


def test_a_thinned_log_keeps_every_point_of_the_curve() -> None:
    rows = [{"step": step, "loss": float(step), "learning_rate": 0.1} for step in range(1, 1001)]
    for step in (1, 500, 1000):
        rows[step - 1]["held_out_loss_math"] = 1 / step
    log = [row.as_json() for row in thin_log(rows)]
    assert len(log) <= 400
    points = {row["step"]: row["held_out_loss_math"] for row in log if "held_out_loss_math" in row}
    assert points == {3: 1.0, 501: 1 / 500, 1000: 1 / 1000}
    assert log[0]["loss"] == 2.0


def test_the_final_loss_is_the_mean_of_the_last_tenth() -> None:
    _, _, examples = small_setup()
    found = figures(examples[:4], examples[4:], [{"loss": float(step)} for step in range(30)], sources={})
    assert found.final_loss == 28.0
    assert (found.train_trees, found.test_trees, found.read) == (4, 2, 6)
    assert found.train_samples == 2 * found.train_records == 2 * (5 + 4 + 5 + 4)
    assert found.tokens_an_epoch == sum(len(example.tree) for example in examples[:4])
    assert found.tokens_an_epoch_as_samples == sum(example.sample_tokens for example in examples[:4])


def test_the_uses_are_those_of_the_plan() -> None:
    """Two and a half epochs: the last one does not reach every tree. A record that is too long has no step."""
    _, _, examples = small_setup()
    plan = plan_of(examples, settings(epochs=2.5, batch_samples=12))
    table = uses(examples, plan, {"long": 9000})
    assert dict(table.schema) == USES
    assert table["id"].to_list() == [*(name for example in examples for name in example.ids), "long"]
    assert table.row(-1) == ("long", [], 9000)
    expected = [
        [number for number, step in enumerate(plan, start=1) if place in step]
        for place, example in enumerate(examples)
        for _ in example.ids
    ]
    assert table["steps"].to_list()[:-1] == expected
    assert {len(steps) for steps in expected} == {2, 3}
    unplanned = uses(examples, [[0]], {})
    assert unplanned["steps"].to_list()[-1] == []


def test_the_saved_folder_describes_itself(tmp_path: Path) -> None:
    model, prompter, _ = small_setup()
    tokenizer = plain_tokenizer()
    save_model(model, tokenizer, prompter, settings(dtype="bfloat16"), ["<+>"], tmp_path / "models/full", LEARNT, {})
    described = read_json(tmp_path / "models/full/pathfinder.json")
    assert described["labels"] == ["math", "consistency", "correctness"]
    assert described["token_ids"] == {"<+>": prompter.ids.good, "<->": prompter.ids.bad, "<extra>": prompter.ids.mask}
    assert described["train"]["dtype"] == "bfloat16"
    assert model.dtype == torch.bfloat16
    assert load_tokenizer(tmp_path / "models/full").chat_template == tokenizer.chat_template
