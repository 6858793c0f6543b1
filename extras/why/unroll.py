"""Differentiate a training run: the change of the trained model's output with the weight of each record.

The derivative covers the whole run, backwards through every optimiser step, as in *MAGIC: Near-Optimal Data
Attribution for Deep Learning* (Ilyas and Engstrom, 2025, arXiv 2504.16430), with AdamW's own update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from extras.why.replay import BETAS, EPSILON, State, Trajectory, TreeLearner


@dataclass(slots=True)
class _Bar:
    """The derivatives of one output with respect to the weights and the moments at a point of the training."""

    weights: Tensor
    first: Tensor
    second: Tensor


def unroll(
    learner: TreeLearner,
    trajectory: Trajectory,
    gradients: Sequence[Tensor],
    records: int,
    on_step: Callable[[int], None] | None = None,
) -> list[npt.NDArray[np.float64]]:
    """The derivatives of outputs with respect to the weight of each record in training, each float64 (records,).

    ``gradients`` has the gradient of each output at the final weights, (parameters,). Removing a record lowers its
    weight from 1 to 0, which changes an output by about minus its derivative. ``on_step`` receives 1 after every step.
    """
    found = [np.zeros(records) for _ in gradients]
    bars = [_Bar(gradient.clone(), torch.zeros_like(gradient), torch.zeros_like(gradient)) for gradient in gradients]
    for step in range(learner.steps - 1, -1, -1):
        state = trajectory.states[step]
        batch = state.batch
        directions = [_through_adam(state, step + 1, bar) for bar in bars]
        bent = learner.bend(step, state.weights, directions)
        for mine, bar, direction, (product, slopes) in zip(found, bars, directions, bent, strict=True):
            mine[batch.records] += (slopes - batch.labels * float(direction @ batch.gradient)) / batch.total
            bar.weights = bar.weights + product
        if on_step is not None:
            on_step(1)
    return found


def _through_adam(state: State, count: int, bar: _Bar) -> Tensor:
    """The derivative by the step's gradient; ``bar`` gets the derivatives by the earlier moments.

    If the root of the second moment is below AdamW's epsilon, the step is too small to matter and counts as fixed.
    """
    root = (state.second / (1 - BETAS[1] ** count)).sqrt()
    alive = root > EPSILON
    divisor = root + EPSILON
    mean = state.first / (1 - BETAS[0] ** count)
    pull = torch.where(alive, state.rate * bar.weights / divisor, 0.0)
    first = bar.first - pull / (1 - BETAS[0] ** count)
    second = bar.second + torch.where(alive, pull * mean / (2 * divisor * root), 0.0) / (1 - BETAS[1] ** count)
    gradient = state.batch.gradient
    direction = (1 - BETAS[0]) * first + 2 * (1 - BETAS[1]) * state.scale * gradient * second
    if state.scale < 1:  # the limited gradient also depends on the norm
        along = float(direction @ gradient) / state.norm**2
        direction = state.scale * (direction - along * gradient)
    bar.first, bar.second = BETAS[0] * first, BETAS[1] * second
    return direction
