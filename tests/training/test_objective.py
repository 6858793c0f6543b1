"""The objective equals the published loss on separate samples, and the figures are read where it is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from pathfinder.core.prompts import VARIANTS
from pathfinder.training.examples import Example, plan_steps, read_examples
from pathfinder.training.objective import area_under_curve, batches, evaluate, summed_loss
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.passes import Prompter
from tests.support.models import (
    plain_tokenizer,
    small_model,
)
from tests.support.training import IGNORED, frame, published_samples, small_setup


def separate_loss(model: Any, tokenizer: Any, prompter: Prompter, table: pl.DataFrame) -> torch.Tensor:
    """The published loss: labels at ``<extra>``, logits one token before, summed over the samples."""
    loss = torch.zeros((), dtype=model.dtype)
    for inputs, labels in published_samples(tokenizer, prompter, table):
        logits = model(input_ids=torch.tensor([inputs])).logits[0, :-1]
        wanted = torch.tensor(labels[1:])
        loss = loss + torch.nn.functional.cross_entropy(logits, wanted, ignore_index=IGNORED, reduction="sum")
    return loss


def tree_loss(model: Any, prompter: Prompter, examples: list[Example], budget: int) -> torch.Tensor:
    use_trees(model)
    loss = torch.zeros((), dtype=model.dtype)
    for batch, targets in batches(examples, budget):
        loss = loss + summed_loss(model, batch.to("cpu", model.dtype), targets, prompter.ids)[0]
    return loss


def gradient(model: Any, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_gradients_equal_the_separate_samples(
    variant: str, dtype: torch.dtype, bound: float, checkpointing: bool, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("exact_norms")
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS[variant])
    model = small_model(tokenizer, dtype)
    want = separate_loss(model, tokenizer, prompter, frame())
    reference = gradient(model, want)
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
        model.train()
    got = tree_loss(model, prompter, read_examples(frame(), prompter, 10**6), budget=300)
    assert abs(got.item() / want.item() - 1) < bound
    assert float((gradient(model, got) - reference).norm() / reference.norm()) < bound


def test_parts_of_a_tree_have_the_loss_of_the_whole() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    model = small_model(plain_tokenizer(), torch.float64)
    whole, cut = (read_examples(frame(2), prompter, 10**6, records_per_tree=count) for count in (0, 2))
    sums = [tree_loss(model, prompter, examples, 4096).item() for examples in (whole, cut)]
    assert len(cut) > len(whole)
    assert sums[0] == pytest.approx(sums[1], rel=1e-9)


def test_soft_labels_have_the_expected_hard_loss(request: pytest.FixtureRequest) -> None:
    """With a value v of Correctness, the loss is v times the loss of "+" and 1 - v times the loss of "-"."""
    request.getfixturevalue("exact_norms")
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    model = small_model(plain_tokenizer(), torch.float64)
    (example,) = read_examples(frame(1, soft=True), prompter, 10**6, soft=True)
    shares = example.targets.shares
    is_correctness = example.targets.marks == prompter.labels.index("correctness")

    def loss(shares: Any) -> torch.Tensor:
        targets = replace(example.targets, shares=np.asarray(shares, dtype=np.float32))
        return tree_loss(model, prompter, [replace(example, targets=targets)], 10**6)

    none = loss(np.where(is_correctness, 0.0, shares))
    wanted = none
    for at in np.flatnonzero(is_correctness):
        only = np.where(is_correctness, np.arange(len(shares)) == at, shares)
        wanted = wanted + float(shares[at]) * (loss(only) - none)
    got = loss(shares)
    assert got.item() == pytest.approx(wanted.item(), rel=1e-12)
    assert loss(np.where(is_correctness, 1.0, shares)).item() != pytest.approx(got.item(), rel=1e-6)
    reference = gradient(model, got)
    assert float((reference - gradient(model, wanted)).norm() / reference.norm()) < 1e-12


def test_figures_are_read_where_the_loss_is_read() -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model = small_model(tokenizer)
    use_trees(model)
    examples = read_examples(frame(), prompter, 10**6)
    for _ in range(40):
        for batch, targets in batches(examples, 4096):
            loss, _ = summed_loss(model, batch.to("cpu", model.dtype), targets, prompter.ids)
            loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.02 * parameter.grad / (parameter.grad.norm() + 1e-6)
                parameter.grad = None
    figures = evaluate(model, examples, prompter, 4096)
    assert {label: f["n"] for label, f in figures.items()} == {"math": 14, "consistency": 14, "correctness": 14}
    assert figures["math"]["auc"] == 1.0
    assert figures["math"]["accuracy"] > figures["math"]["majority_accuracy"]
    assert figures["consistency"]["majority_accuracy"] == pytest.approx(11 / 14)


def test_area_under_curve() -> None:
    scores = np.array([0.1, 0.4, 0.35, 0.8])
    assert area_under_curve(scores, np.array([False, False, True, True])) == 0.75
    assert area_under_curve(np.zeros(4), np.array([False, True, True, False])) == 0.5
    assert area_under_curve(scores, np.ones(4, dtype=bool)) is None


def test_the_loss_of_a_label_is_its_cross_entropy_between_two_tokens() -> None:
    model, prompter, examples = small_setup()
    found = evaluate(model, examples, prompter, 4096)
    losses: dict[int, list[float]] = {}
    for batch, targets in batches(examples, 300):
        logits = read_logits(model, batch.to("cpu", model.dtype)).detach().double()
        pair = torch.log_softmax(logits[:, [prompter.ids.bad, prompter.ids.good]], dim=1)
        for place, (mark, positive) in enumerate(zip(targets.marks, targets.positive, strict=True)):
            losses.setdefault(int(mark), []).append(-float(pair[place, int(positive)]))
    for mark, label in enumerate(prompter.labels):
        assert found[label]["loss"] == pytest.approx(np.mean(losses[mark]), rel=1e-6)


def test_an_epoch_has_the_expected_gradient_of_the_published_batches(request: pytest.FixtureRequest) -> None:
    """Steps of whole trees and steps of single samples, each counted by its labels, have the same mean gradient.

    It is the gradient of the mean loss over all labels. Equal weights of problems have another one.
    """
    request.getfixturevalue("exact_norms")
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model = small_model(tokenizer, torch.float64)
    samples = list(published_samples(tokenizer, prompter, frame(5)))
    order = np.random.default_rng(3).permutation(len(samples)).tolist()

    def published(chosen: list[int]) -> tuple[torch.Tensor, float]:
        total = sum(label != IGNORED for i in chosen for label in samples[i][1])
        sums = [
            torch.nn.functional.cross_entropy(
                model(input_ids=torch.tensor([ids])).logits[0, :-1],
                torch.tensor(labels[1:]),
                ignore_index=IGNORED,
                reduction="sum",
            )
            for ids, labels in (samples[i] for i in chosen)
        ]
        return gradient(model, torch.stack(sums).sum() / total), float(total)

    wanted = mean_of([published(order[start : start + 12]) for start in range(0, len(order), 12)])
    use_trees(model)
    for weighting, is_equal in (("sample", True), ("problem", False)):
        examples = read_examples(frame(5), prompter, 10**6, weighting, records_per_tree=3)
        plan = plan_steps([example.samples for example in examples], 12, 1.0, 5)
        assert len({sum(examples[i].samples for i in step) for step in plan}) > 1
        steps = []
        for step in plan:
            chosen = [examples[i] for i in step]
            total = float(sum(example.targets.weights.sum() for example in chosen))
            steps.append((gradient(model, tree_loss(model, prompter, chosen, 300) / total), total))
        gap = float((mean_of(steps) - wanted).norm() / wanted.norm())
        assert (gap < 1e-12) == is_equal, weighting


def mean_of(steps: list[tuple[torch.Tensor, float]]) -> torch.Tensor:
    """The mean of gradients, each weighted by the second number."""
    return sum((vector * weight for vector, weight in steps), torch.zeros(())) / sum(weight for _, weight in steps)
