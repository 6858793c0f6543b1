"""A run's training as the train stage does it: the same trees, steps, losses and starting weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from extras.why.replay import Batch
from pathfinder.core.params import Train
from pathfinder.models.tokens import LabelIds
from pathfinder.training.examples import Example, Targets, plan_trees
from pathfinder.training.objective import batch_of
from pathfinder.tree.attention import read_logits
from pathfinder.tree.packing import pack
from pathfinder.tree.passes import Prompter


class TreeLearner:
    """A network and the records that it learns from: the ``replay.Learner`` of tree models.

    ``weights`` holds the weight of every record: 1, or 0 for a record that is removed. The other records keep their
    optimiser steps, so only the removal differs.
    """

    def __init__(
        self, examples: Sequence[Example], prompter: Prompter, network: Any, settings: Train, seed: int | None = None
    ) -> None:
        """``seed`` replaces the seed of the settings: the same records in a different order."""
        self.network, self.prompter = network, prompter
        self.ids = [identity for example in examples for identity in example.ids]
        self.weights = np.ones(len(self.ids))
        self.examples, self._budget = examples, settings.token_budget
        self._firsts = np.cumsum([0, *(example.records for example in examples)])
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self._start = flat(self._parameters)
        self.plan = plan_trees(examples, settings if seed is None else settings.model_copy(update={"seed": seed}))

    @property
    def steps(self) -> int:
        """The number of optimiser steps."""
        return len(self.plan)

    @property
    def shares(self) -> list[int]:
        """The sizes of the parameters in a flat vector."""
        return [p.numel() for p in self._parameters]

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
        """See ``replay.Learner``: exact second derivatives, from one graph for all directions."""
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
        """Per forward pass the record of each reading, its loss and its weight, all (readings,)."""
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
        """The record of each reading. The readings of an example are ordered by record, equally many of each."""
        first, stop = self._firsts[example : example + 2]
        return np.repeat(np.arange(first, stop), len(self.examples[example].targets.marks) // (stop - first))

    def _factors(self, example: int) -> npt.NDArray[np.float32]:
        """The weight of each reading."""
        factors = self.examples[example].targets.weights * self.weights[self._owners(example)]
        return factors.astype(np.float32)


def reading_losses(logits: Tensor, targets: Targets, ids: LabelIds) -> Tensor:
    """The cross-entropy of each reading, (readings,); ``training.objective.summed_loss`` is their weighted sum."""
    if bool(np.isin(targets.shares, (0, 1)).all()):
        wanted = torch.from_numpy(targets.shares > 0)
        return cross_entropy(logits, torch.where(wanted, ids.good, ids.bad), reduction="none")
    share = torch.from_numpy(targets.shares).to(logits.dtype)
    return logits.logsumexp(dim=-1) - share * logits[:, ids.good] - (1 - share) * logits[:, ids.bad]


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """All values in one vector, detached."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
