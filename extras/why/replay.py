"""Train once more and keep every state on the way, so that the training can be differentiated.

The optimiser is the train stage's: AdamW without weight decay, a limit on the gradient's norm, and a schedule.
Weights, moments and gradients are flat vectors of all parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pathfinder.core.params import Train

BETAS = (0.9, 0.999)
EPSILON = 1e-8
"""AdamW's settings in the train stage, which are torch's own."""
_SMALLEST_NORM = 1e-6
"""torch adds it to the gradient's norm before it divides by the norm."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of an optimiser step, and the gradient of its loss."""

    gradient: Tensor
    """(parameters,) of the weighted sum over the records, divided by their weighted labels"""
    records: npt.NDArray[np.int64]
    """(records,): their numbers; no record occurs twice"""
    labels: npt.NDArray[np.float64]
    """(records,): the number of labels of each record, not weighted"""
    total: float
    """The number of labels of the step, weighted."""


class Learner(Protocol):
    """A model with weighted records, distributed over optimiser steps."""

    @property
    def steps(self) -> int:
        """The number of optimiser steps."""

    @property
    def shares(self) -> Sequence[int]:
        """The sizes of the parameters in a flat vector."""

    def start(self) -> Tensor:
        """The weights before training, (parameters,)."""

    def batch(self, step: int, weights: Tensor) -> Batch:
        """Optimiser step ``step``, from 0, at ``weights``."""

    def bend(
        self, step: int, weights: Tensor, directions: Sequence[Tensor]
    ) -> list[tuple[Tensor, npt.NDArray[np.float64]]]:
        """For each direction the product with the Hessian of the step's loss, and the slopes along it.

        A slope is the derivative of the loss of one of ``Batch.records``, summed over the record's labels without its
        weight, float64 (records,).
        """


@dataclass(frozen=True, slots=True)
class State:
    """One optimiser step: the weights before it, and AdamW's moments after it."""

    weights: Tensor
    batch: Batch
    norm: float
    first: Tensor
    second: Tensor
    rate: float
    scale: float
    """The factor, at most 1, that limits the gradient's norm."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All optimiser steps if they were kept, and the weights after the last one."""

    states: list[State]
    final: Tensor


def rates_of(settings: Train, steps: int) -> list[float]:
    """The learning rate of each optimiser step."""
    from transformers import get_scheduler  # takes seconds

    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=settings.learning_rate)
    schedule = get_scheduler(settings.schedule, optimiser, math.ceil(settings.warmup_ratio * steps), steps)
    found = []
    for _ in range(steps):
        found.append(float(schedule.get_last_lr()[0]))
        optimiser.step()
        schedule.step()
    return found


def replay(
    learner: Learner,
    rates: Sequence[float],
    max_norm: float,
    keep: bool = True,
    on_step: Callable[[int], None] | None = None,
) -> Trajectory:
    """Train ``learner`` from its start, with one learning rate per step.

    ``keep`` stores the states. ``on_step`` receives 1 after every step.
    """
    weights = torch.nn.Parameter(learner.start().clone())
    optimiser = torch.optim.AdamW([weights], lr=1.0, betas=BETAS, eps=EPSILON, weight_decay=0.0, fused=True)
    states = []
    for step in range(learner.steps):
        before = weights.detach().clone() if keep else weights.detach()
        batch = learner.batch(step, before)
        parts = torch.split(batch.gradient, list(learner.shares))
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part) for part in parts]))
        scale = torch.clamp(max_norm / (norm + _SMALLEST_NORM), max=1.0)
        weights.grad = batch.gradient * scale
        optimiser.param_groups[0]["lr"] = rates[step]
        optimiser.step()
        if keep:
            moments = optimiser.state[weights]
            first, second = moments["exp_avg"].clone(), moments["exp_avg_sq"].clone()
            states.append(State(before, batch, float(norm), first, second, rates[step], float(scale)))
        if on_step is not None:
            on_step(1)
    return Trajectory(states, weights.detach())
