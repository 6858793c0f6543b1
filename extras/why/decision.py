"""The decision of a PRM about one step, and the smooth output whose sign it follows.

The decision reads quality: a step is correct if the reward, read given the predicted error labels, is at least one
half. ProcessBench reads soundness: a correct step that leads nowhere is sound, too. The output is the log-odds of the
reward averaged over the error labels by their probabilities (mode ``all``), because the predicted labels have no
derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from extras.why.replay import flat
from pathfinder.core.steps import Solution
from pathfinder.prm.steps import queries_of
from pathfinder.tree.attention import read_logits
from pathfinder.tree.layout import batch_trees
from pathfinder.tree.passes import Place, Prompter, expected_reward
from pathfinder.tree.tree import Tree


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a solution, laid out for every combination of error labels."""

    name: str
    tree: Tree
    places: list[Place]


@dataclass(frozen=True, slots=True)
class Reward:
    """The tree of a step, and the model's places in it."""

    log_odds: float
    """the explained output: the log-odds of the reward averaged over the error labels, in nats"""
    reward: float
    """given the predicted error labels, as in the evaluation"""
    labels: dict[str, float]
    """P(``<+>``) of each first-pass label"""

    @property
    def is_correct(self) -> bool:
        """The decision about the step."""
        return self.reward >= 0.5


def decisive(found: Sequence[Reward]) -> int:
    """The step that decides the verdict on a solution: the first incorrect step, else the lowest output."""
    correct = [reward.is_correct for reward in found]
    return correct.index(False) if False in correct else min(range(len(found)), key=lambda i: found[i].log_odds)


def step_of(prompter: Prompter, solution: Solution, number: int) -> Step:
    """Step ``number`` of a solution, from 0."""
    query = queries_of(solution)[number]
    tree, places = prompter.tree([query])
    return Step(query.name, tree, places)


def rewards(network: Any, prompter: Prompter, steps: Sequence[Step]) -> list[Reward]:
    """The network's reading of each step."""
    with torch.no_grad():
        margins = iter(torch.split(_margins(network, prompter, steps), [len(step.places) for step in steps]))
    return [_reward(prompter, step, next(margins)) for step in steps]


def output_gradient(network: Any, prompter: Prompter, step: Step) -> Tensor:
    """The gradient of the output with respect to the network's trained parameters, (parameters,)."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    output = _log_odds(prompter, step, _margins(network, prompter, [step]))
    found = torch.autograd.grad(output, parameters, allow_unused=True)
    return flat([torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)])


def _margins(network: Any, prompter: Prompter, steps: Sequence[Step]) -> Tensor:
    """The logit of ``<+>`` minus the logit of ``<->`` at every place of every step, float64."""
    logits = read_logits(network, batch_trees([step.tree for step in steps]))
    return (logits[:, prompter.ids.good] - logits[:, prompter.ids.bad]).double()


def _log_odds(prompter: Prompter, step: Step, margins: Tensor) -> Tensor:
    found = {(r.given, r.mark): margin.sigmoid() for r, margin in zip(step.places, margins, strict=True)}
    reward: Any = expected_reward(prompter.passes, lambda given, mark: found[given, mark])
    return torch.logit(reward)


def _reward(prompter: Prompter, step: Step, margins: Tensor) -> Reward:
    found = {(r.given, r.mark): margin for r, margin in zip(step.places, margins.tolist(), strict=True)}
    predicted: list[bool] = []
    labels: dict[str, float] = {}
    for one in prompter.passes:
        given = tuple(predicted[: len(one.given)])
        for mark in one.asked:
            predicted.append(found[given, mark] >= 0)
            labels[prompter.labels[mark]] = float(torch.tensor(found[given, mark]).sigmoid())
    reward = labels.pop("correctness")
    return Reward(float(_log_odds(prompter, step, margins)), reward, labels)
