"""Derivatives of a training run with respect to its records equal what training again shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from extras.why.decision import decisive, output_gradient, rewards, step_of
from extras.why.replay import Batch, TreeLearner, rates_of, replay
from extras.why.unroll import unroll
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.steps import Solution
from pathfinder.models.folders import open_model
from pathfinder.training.examples import read_examples
from pathfinder.training.trainer import fit
from pathfinder.tree.attention import use_trees
from pathfinder.tree.passes import Prompter
from tests.support.models import plain_tokenizer, small_model
from tests.support.training import frame, settings, small_setup

STEP, SMALL = 1e-5, 2.0**-16  # the second is exact in float32


class Curve:
    """A regression whose loss is almost quadratic, with two records in each of six steps."""

    shares: Sequence[int] = (1, 3)
    steps = 6

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(12, 4, dtype=torch.float64, generator=generator)
        self.targets = torch.randn(12, dtype=torch.float64, generator=generator)
        self.weights = np.ones(12)

    def start(self) -> Tensor:
        return torch.ones(4, dtype=torch.float64)

    def _losses(self, step: int, weights: Tensor) -> tuple[npt.NDArray[np.int64], Tensor, Tensor]:
        chosen = np.array([step, step + 6])
        found = self.inputs[chosen] @ weights
        losses = (found - self.targets[chosen]) ** 2 + 0.1 * torch.sin(2 * found)
        return chosen, losses, torch.from_numpy(self.weights[chosen])

    def batch(self, step: int, weights: Tensor) -> Batch:
        at = weights.clone().requires_grad_()
        chosen, losses, factors = self._losses(step, at)
        (gradient,) = torch.autograd.grad((losses * factors).sum() / factors.sum(), at)
        return Batch(gradient, chosen, np.ones(2), float(factors.sum()))

    def bend(
        self, step: int, weights: Tensor, directions: Sequence[Tensor]
    ) -> list[tuple[Tensor, npt.NDArray[np.float64]]]:
        def mean(at: Tensor) -> Tensor:
            _, losses, factors = self._losses(step, at)
            return (losses * factors).sum() / factors.sum()

        hessian: Any = torch.autograd.functional.hessian(mean, weights)  # type: ignore[no-untyped-call]
        slopes: Any = torch.autograd.functional.jacobian(lambda at: self._losses(step, at)[1], weights)  # type: ignore[no-untyped-call]
        return [(hessian @ direction, (slopes @ direction).numpy()) for direction in directions]


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_influence_in_a_regression_is_exact(max_norm: float) -> None:
    curve: Any = Curve()
    rates, output = [0.0, 0.05, 0.1, 0.1, 0.05, 0.02], torch.tensor([1.0, -2.0, 0.5, 3.0])
    output = output.double()
    trajectory = replay(curve, rates, max_norm)
    assert (min(state.scale for state in trajectory.states) < 1) == (max_norm < 1)
    (found,) = unroll(curve, trajectory, [output], 12)
    for record in range(12):
        ends = []
        for change in (STEP, -STEP):
            curve.weights = np.ones(12)
            curve.weights[record] += change
            ends.append(float(output @ replay(curve, rates, max_norm, keep=False).final))
        assert found[record] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), abs=1e-6)
    assert np.abs(found).max() > 1e-3


@pytest.mark.usefixtures("exact_norms")
@pytest.mark.parametrize("variant", ["full", "no_error_categories", "no_subtasks"])
def test_influence_on_a_tree_model_is_that_of_training_again(variant: str) -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS[variant])
    network = small_model(tokenizer, torch.float64)
    use_trees(network)
    chosen = settings(learning_rate=1e-4, epochs=1.0)
    learner = TreeLearner(read_examples(frame(4), prompter, 4096), prompter, network, chosen)
    rates = rates_of(chosen, learner.steps)
    step = step_of(prompter, Solution("i", "What is 9?", ("first 9", "so 10")), 1)

    def output(record: int = 0, change: float = 0.0) -> float:
        learner.weights = np.ones(len(learner.ids))
        learner.weights[record] += change
        learner.set(replay(learner, rates, chosen.max_grad_norm, keep=False).final)
        return rewards(network, prompter, [step])[0].log_odds

    trajectory = replay(learner, rates, chosen.max_grad_norm)
    learner.set(trajectory.final)
    (found,) = unroll(learner, trajectory, [output_gradient(network, prompter, step)], len(learner.ids))
    assert found.sum() == pytest.approx(0, abs=1e-7)  # all records together only scale each step's labels
    for record in (0, 7, len(found) - 1):
        again = (output(record, SMALL) - output(record, -SMALL)) / (2 * SMALL)
        assert found[record] == pytest.approx(again, rel=0.01, abs=1e-5)


def test_the_replay_ends_with_the_bytes_of_the_train_stage(tmp_path: Any) -> None:
    chosen = settings()
    network, prompter, examples = small_setup()
    fit(network, prompter, examples, chosen, tmp_path)
    again, _, _ = small_setup()
    learner = TreeLearner(examples, prompter, again, chosen)
    trajectory = replay(learner, rates_of(chosen, learner.steps), chosen.max_grad_norm)
    assert torch.equal(trajectory.final, torch.cat([p.detach().flatten() for p in network.parameters()]))


def test_a_removed_record_has_no_part_in_the_training() -> None:
    """The other records keep their steps: the result is as with a training set without the record, in this order."""
    chosen = settings(epochs=1.0, batch_samples=100)
    network, prompter, examples = small_setup()
    learner = TreeLearner(examples, prompter, network, chosen)
    rates = rates_of(chosen, learner.steps)
    assert learner.steps == 1
    learner.weights[:5] = 0  # the first tree
    final = replay(learner, [1e-3], chosen.max_grad_norm, keep=False).final
    learner.set(learner.start())
    others = TreeLearner(examples[1:], prompter, network, chosen)
    assert torch.allclose(final, replay(others, [1e-3], chosen.max_grad_norm, keep=False).final, atol=1e-7)
    assert len(rates) == 1


def test_rewards_are_those_of_the_scorer(tmp_path: Any) -> None:
    from pathfinder.prm.scoring import Scorer

    network, prompter, _ = small_setup()
    solution = Solution("i", "What is 3?", ("first 3", "then more", "so 4"))
    found = rewards(network, prompter, [step_of(prompter, solution, number) for number in range(3)])
    network.config._attn_implementation = "sdpa"
    network.save_pretrained(tmp_path)
    plain_tokenizer_with_labels = plain_tokenizer()
    Prompter(plain_tokenizer_with_labels, VARIANTS["full"])
    plain_tokenizer_with_labels.save_pretrained(tmp_path)
    (scores,) = Scorer(open_model(tmp_path)).score([solution])
    assert [reward.reward for reward in found] == pytest.approx([score.reward for score in scores], abs=1e-5)
    assert [reward.labels for reward in found] == [pytest.approx(dict(score.first), abs=1e-5) for score in scores]
    first = [reward.is_correct for reward in found]
    assert decisive(found) == (first.index(False) if False in first else int(np.argmin([r.log_odds for r in found])))
