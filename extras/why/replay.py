"""Train once more and keep every intermediate state, so that the training can be differentiated.

Trees, steps, losses, starting weights and the optimiser are the same as in the train stage: AdamW without weight decay,
a limit on the gradient's norm, and a schedule. Weights, moments and gradients are flat vectors of all parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pathfinder.core.params import Train
from pathfinder.training.examples import Example, plan_trees
from pathfinder.training.objective import batch_of, reading_losses
from pathfinder.tree.attention import read_logits
from pathfinder.tree.packing import pack
from pathfinder.tree.passes import Prompter

BETAS = (0.9, 0.999)
EPSILON = 1e-8
"""AdamW's settings in the train stage (torch's defaults)."""
_SMALLEST_NORM = 1e-6
"""torch adds it to the gradient's norm before it divides by the norm."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of an optimiser step, and the gradient of its loss."""

    gradient: Tensor
    """(parameters,) gradient of the weighted sum over the records, divided by their weighted labels"""
    records: npt.NDArray[np.int64]
    """(records,): their numbers; no record occurs twice"""
    labels: npt.NDArray[np.float64]
    """(records,): the number of labels of each record, not weighted"""
    total: float
    """The number of labels of the step, weighted."""


class TreeLearner:
    """A network and the records that it learns from, distributed over optimiser steps.

    ``weights`` holds the weight of every record: 1, or 0 for a record that is removed. All other records keep their
    optimiser steps, so only the removal differs. ``steps`` is the number of optimiser steps, and ``shares`` are the
    sizes of the parameters in a flat vector.
    """

    def __init__(self, examples: Sequence[Example], prompter: Prompter, network: Any, settings: Train) -> None:
        self.network, self.prompter = network, prompter
        self.ids = [identity for example in examples for identity in example.ids]
        self.weights = np.ones(len(self.ids))
        self.examples, self._budget = examples, settings.token_budget
        self._firsts = np.cumsum([0, *(example.records for example in examples)])
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self._start = flat(self._parameters)
        self.shares = [p.numel() for p in self._parameters]
        self.plan = plan_trees(examples, settings)
        self.steps = len(self.plan)

    def start(self) -> Tensor:
        """The network's weights when this learner was made: the base model's."""
        return self._start

    def set(self, weights: Tensor) -> None:
        """Give the network these weights, (parameters,)."""
        with torch.no_grad():
            for parameter, part in zip(self._parameters, torch.split(weights, self.shares), strict=True):
                parameter.copy_(part.view_as(parameter))

    def batch(self, step: int, weights: Tensor) -> Batch:
        """The records of an optimiser step that are not removed, and their gradient at ``weights``."""
        self.set(weights)
        for parameter in self._parameters:
            parameter.grad = None
        chosen = self._chosen(step)
        total = self._total(chosen)
        for _, losses, factors in self._passes(chosen):
            ((losses * factors).sum() / total).backward()  # type: ignore[no-untyped-call]
        labels = np.zeros(len(self.ids))
        for example in chosen:
            np.add.at(labels, self._owners(example), self.examples[example].targets.weights)
        records = np.flatnonzero(labels * self.weights)
        gradient = flat([torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters])
        return Batch(gradient, records, labels[records], total)

    def bend(
        self, step: int, weights: Tensor, directions: Sequence[Tensor]
    ) -> list[tuple[Tensor, npt.NDArray[np.float64]]]:
        """For each direction, its product with the Hessian of the step's loss, and the slopes along it.

        A slope is the derivative of the loss of one of ``Batch.records``, summed over the record's labels without its
        weight, float64 (records,). The second derivatives are exact, from one graph for all directions.
        """
        self.set(weights)
        chosen = self._chosen(step)
        total = self._total(chosen)
        products = [torch.zeros_like(weights) for _ in directions]
        slopes = np.zeros((len(directions), len(self.ids)))
        with sdpa_kernel(SDPBackend.MATH):  # the fast kernels have no second derivative
            for owners, losses, factors in self._passes(chosen):
                ones = torch.ones_like(losses, requires_grad=True)
                loss = (ones * losses * factors).sum() / total
                gradient = torch.autograd.grad(loss, self._parameters, create_graph=True)
                for number, direction in enumerate(directions):
                    parts = torch.split(direction, self.shares)
                    slope = torch.stack([(g * p.view_as(g)).sum() for g, p in zip(gradient, parts, strict=True)]).sum()
                    *bent, along = torch.autograd.grad(
                        slope, [*self._parameters, ones], retain_graph=number < len(directions) - 1
                    )
                    products[number] += flat(bent)
                    np.add.at(slopes[number], owners, along.double().numpy() * total)
        labels = np.zeros(len(self.ids))
        for example in chosen:
            labels[self._owners(example)] = 1
        records = np.flatnonzero(labels * self.weights)
        return [(product, mine[records]) for product, mine in zip(products, slopes, strict=True)]

    def _passes(self, chosen: Sequence[int]) -> Iterator[tuple[npt.NDArray[np.int64], Tensor, Tensor]]:
        """For each forward pass, the record of each reading, its loss and its weight, all (readings,)."""
        for group in pack([len(self.examples[e].tree) for e in chosen], self._budget):
            numbers = [chosen[i] for i in group]
            batch, targets = batch_of([self.examples[e] for e in numbers])
            losses = reading_losses(read_logits(self.network, batch), targets, self.prompter.ids)
            owners = np.concatenate([self._owners(e) for e in numbers])
            factors = np.concatenate([self._factors(e) for e in numbers])
            yield owners, losses, torch.from_numpy(factors)

    def _chosen(self, step: int) -> list[int]:
        """The examples of a step that have a record left."""
        return [e for e in self.plan[step] if self.weights[self._firsts[e] : self._firsts[e + 1]].any()]

    def _total(self, chosen: Sequence[int]) -> float:
        return sum(float(self._factors(example).sum()) for example in chosen)

    def _owners(self, example: int) -> npt.NDArray[np.int64]:
        """The record of each reading. An example's readings are ordered by record, equally many per record."""
        first, stop = self._firsts[example : example + 2]
        return np.repeat(np.arange(first, stop), len(self.examples[example].targets.marks) // (stop - first))

    def _factors(self, example: int) -> npt.NDArray[np.float32]:
        """The weight of each reading."""
        factors = self.examples[example].targets.weights * self.weights[self._owners(example)]
        return factors.astype(np.float32)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """All values in one vector, detached."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


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
    """All optimiser steps, if they were kept, and the final weights."""

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
    learner: TreeLearner,
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
