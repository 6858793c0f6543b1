"""Wrong labels: how many there are is estimated without the truth, and the loss that knows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from extras.experiment.cell import Laboratory
from extras.experiment.noise import Flips, corrected, estimated, flipped
from extras.experiment.plan import Cell
from ground.io import DataError
from pathfinder.core.labels import HUMAN, STEP_LABELS
from pathfinder.core.records import TREES
from pathfinder.models.tokens import LabelIds
from pathfinder.training.examples import Example


def _records(count: int) -> pl.DataFrame:
    labels = [{"math": int(i % 3 > 0), "consistency": 1, "correctness": int(i % 3 == 1)} for i in range(count)]
    branches = [{"id": f"{i}", "step_index": 0, "step": ""} | given for i, given in enumerate(labels)]
    return pl.DataFrame([("t", "p", HUMAN, "", [""], [branch]) for branch in branches], schema=TREES, orient="row")


def _labels(frame: pl.DataFrame) -> list[tuple[int, ...]]:
    return [tuple(row[0][name] for name in STEP_LABELS) for row in frame["branches"].to_list()]


def test_flips_have_the_wanted_shares_and_consistent_labels() -> None:
    before, flips = _records(3000), Flips(0.1, 0.3)
    after, shares = flipped(before, flips, 7)
    assert shares == pytest.approx(flips, abs=0.03)
    changed = {(old, new) for old, new in zip(_labels(before), _labels(after), strict=True) if old != new}
    assert changed == {((1, 1, 1), (0, 1, 0)), ((1, 1, 0), (0, 1, 0)), ((0, 1, 0), (1, 1, 1))}
    assert flipped(before, flips, 7)[0].equals(after), "equal seeds flip equal labels"
    assert flipped(before, Flips(0.0, 0.0), 7)[0].equals(before)


@pytest.mark.parametrize("flips", [Flips(0.05, 0.1), Flips(0.15, 0.25)])
def test_the_rates_are_estimated_without_the_truth(flips: Flips) -> None:
    rng = np.random.default_rng(3)
    truth = rng.random(20000) < 0.7
    observed = np.where(rng.random(20000) < np.where(truth, flips.false_minus, flips.false_plus), ~truth, truth)
    # what a good model of noisy labels predicts: the share of observed "+" at each truth
    seen = np.where(truth, 1 - flips.false_minus, flips.false_plus) + rng.normal(0, 0.02, 20000)
    assert estimated(observed, seen) == pytest.approx(flips, abs=0.01)
    with pytest.raises(DataError, match="all records have one label"):
        estimated(np.ones(3, dtype=np.bool_), np.ones(3))


def test_the_corrected_loss_is_the_likelihood_of_what_was_observed() -> None:
    logits, ids = torch.randn(4, 6), LabelIds(good=2, bad=5, mask=0)
    plain = logits.log_softmax(-1)
    assert torch.allclose(corrected(logits, ids, Flips(0.0, 0.0)), plain)
    good, bad = plain[:, [2, 5]].exp().unbind(-1)
    found = corrected(logits, ids, Flips(0.1, 0.3))
    assert torch.allclose(found[:, 2].exp(), 0.9 * good + 0.3 * bad)
    assert torch.allclose(found[:, 5].exp(), 0.1 * good + 0.7 * bad)
    others = [0, 1, 3, 4]
    assert torch.equal(found[:, others], plain[:, others])
    assert torch.allclose(found.log_softmax(-1), found, atol=1e-6), (
        "they are probabilities, so a loss takes them as logits"
    )


def test_the_rates_are_estimated_once_and_the_loss_expects_them(
    bench: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = {
        name: bench.plan.block("main").model_copy(update={"flips": [0.2, 0.3], "correction": name})
        for name in ("none", "estimated", "true")
    }
    cell = Cell("b1", "plain_error", 40, 1)
    other = replace(bench, plan=bench.plan.model_copy(update={"blocks": blocks}))
    labels, chances = other.observed("none", cell)
    found = {name: other.noise(name, cell) for name in blocks}
    assert found["none"] == found["estimated"] == found["true"]
    assert found["none"] == {"true": other.records("none", cell)[1], "estimated": estimated(labels, chances)}
    monkeypatch.setattr(Laboratory, "observed", pytest.fail)  # the estimate is stored
    weights = {}
    for name in blocks:
        path = other.train(name, cell, tmp_path / name, other.noise(name, cell).get(name))
        weights[name] = (path / "model.safetensors").read_bytes()
    assert len({*weights.values()}) == 3
    assert bench.noise("main", cell) == {}


def test_a_record_is_predicted_by_models_that_did_not_learn_from_it(
    bench: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, learnt = Cell("b1", "plain_error", 40, 1), list[tuple[set[str], int]]()
    fitted = Laboratory._fitted

    def watched(self: Laboratory, block: str, cell: Cell, examples: list[Example], *rest: Any) -> Any:
        learnt.append(({example.name for example in examples}, cell.seed))
        return fitted(self, block, cell, examples, *rest)

    monkeypatch.setattr(Laboratory, "_fitted", watched)
    labels, chances = bench.observed("main", cell)
    examples = bench.examples("main", cell)
    halves = [{example.name for example in examples[part::2]} for part in range(2)]
    assert [names for names, _ in learnt] == [halves[0]] * 8 + [halves[1]] * 8
    first = bench.plan.block("main").seeds[0]
    assert [seed for _, seed in learnt] == [*range(first, first + 8)] * 2
    assert len(labels) == len(chances) == sum(len(example.targets.positive) for example in examples)
    assert labels.sum() == sum(example.targets.positive.sum() for example in examples)
    assert ((chances > 0) & (chances < 1)).all()
    assert chances[labels].mean() > chances[~labels].mean(), "the base models know something of verification"
