"""Weighting ``device``: the published batches, compared with what transformers' ``Trainer`` 4.52.3 did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ground.io import read_json
from pathfinder.training.published import plan_samples, weigh
from tests.published.kept import CASES, cases
from tests.published.samples import scored
from tests.published.train_here import examples, train
from tests.published.trainer import AT_ONCE, DEVICES
from tests.support.processes import in_processes

KEPT: dict[str, Any] = json.loads((CASES / "trainer.json").read_text(encoding="utf-8"))[0]
STEPS, NORMS, RATES = (KEPT["training"][name] for name in ("steps", "norms", "rates"))


def given(step: list[list[int]], at_once: int) -> list[int]:
    """The samples of a step in the order in which the devices take them."""
    turns = range(0, len(step[0]), at_once)
    return [sample for turn in turns for device in step for sample in device[turn : turn + at_once]]


@pytest.mark.parametrize("case", KEPT["orders"], ids=lambda case: f"{len(case['input'][-1])}-on-{case['input'][0]}")
def test_samples_have_the_order_of_the_published_trainer(case: dict[str, Any]) -> None:
    devices, at_once, accumulated, epochs, seed, lengths = case["input"]
    found = plan_samples(lengths, devices * at_once * accumulated, epochs, seed, devices, at_once)
    assert found == [given(step, at_once) for step in case["output"]]


def test_examples_are_the_published_samples() -> None:
    """The ids up to the last label, its place, and the label: the published ids after it end the turn."""
    found = cases("samples", "batch_preprocess")
    assert [case.input for case in found] == list(scored())
    published = [sample for case in found for sample in case.output]
    prompter, ours = examples("device")
    assert len(ours) == len(published) > 100
    ends = set()
    for example, (ids, labels) in zip(ours, published, strict=True):
        assert example.tree.ids.tolist() == ids[: len(example.tree)]
        wanted = [prompter.ids.of(bool(positive)) for positive in example.targets.positive]
        assert dict(zip((int(place) + 1 for place in example.tree.reads), wanted, strict=True)) == {
            int(place): label for place, label in labels.items()
        }
        ends.add(len(ids) - len(example.tree))
    assert len(ends) == 1, "the order by length is the same with and without the end of the turn"


def test_each_device_divides_by_its_own_labels() -> None:
    _, ours = examples("device")
    for step in STEPS:
        weighed = weigh([ours[sample] for sample in given([numbers for numbers, _ in step], AT_ONCE)])
        assert len({float(weight) for example in weighed for weight in example.targets.weights}) > 1
        shares = [0.0] * DEVICES
        for place, example in enumerate(weighed):
            shares[place // AT_ONCE % DEVICES] += float(example.targets.weights.sum())
        assert shares == pytest.approx([1 / DEVICES] * DEVICES)


@pytest.mark.slow
def test_two_processes_train_as_the_published_eight_do(tmp_path: Path) -> None:
    """Loss, norm of the gradient, learning rate and weights; the second time after an interruption."""
    wanted = load_file(CASES / "trainer.safetensors")
    in_processes(2, train, tmp_path, "device", 700, folder=tmp_path)
    compare(tmp_path, wanted)
    newest = max((tmp_path / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    for path in newest.iterdir():
        path.unlink()
    in_processes(1, train, tmp_path, "device", 4096, folder=tmp_path)
    compare(tmp_path, wanted)
    other = tmp_path / "trees"
    other.mkdir()
    in_processes(2, train, other, "sample", 4096, folder=other)
    assert distance(load_file(other / "weights.safetensors"), wanted) > 1e-5


def compare(folder: Path, wanted: dict[str, torch.Tensor]) -> None:
    rows = read_json(folder / "rows.json")
    assert [row["loss"] for row in rows] == pytest.approx(
        [sum(loss for _, loss in step) / DEVICES for step in STEPS], abs=1e-6
    )
    assert [row["grad_norm"] for row in rows] == pytest.approx(NORMS, rel=1e-6)
    assert [row["learning_rate"] for row in rows] == pytest.approx(RATES, rel=1e-9)
    assert distance(load_file(folder / "weights.safetensors"), wanted) < 1e-6


def distance(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert mine.keys() == theirs.keys()
    return max(float((mine[name] - theirs[name]).abs().max()) for name in mine)
