"""The published batches: the order of the samples, and the weights of their labels.

The published training gives two samples at a time to each of eight devices. A device divides its losses by the number
of its own labels in the optimiser step, and the gradients of the devices are averaged.

Source: ``training_configs/prm_train.yaml`` (``group_by_length``) and ``deepspeed_zero2.yaml`` of the published code;
``Trainer`` of transformers 4.52.3, where ``average_tokens_across_devices`` is off. ``tests/published/trainer.py`` runs
it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from pathfinder.core.params import AT_ONCE, DEVICES
from pathfinder.training.examples import Example

_MOST_STEPS = 50
"""A device's samples are sorted in groups of this many optimiser steps, or fewer if there would not be four groups."""


def plan_samples(
    lengths: Sequence[int], batch_samples: int, epochs: float, seed: int, devices: int = DEVICES, at_once: int = AT_ONCE
) -> list[list[int]]:
    """The samples of each optimiser step, in the order in which they are given to the devices.

    ``lengths`` is the number of tokens per sample. Each epoch begins with a step that holds the longest sample. Its
    last step is filled with the first samples until every device has the same number.
    """
    generator = torch.Generator().manual_seed(seed)
    per_round, steps = devices * at_once, list[list[int]]()
    for _ in range(math.ceil(epochs)):
        torch.empty((), dtype=torch.int64).random_(generator=generator)  # the seed that a DataLoader draws
        order = _by_length(lengths, batch_samples // devices, generator)
        order += itertools.islice(itertools.cycle(order[:per_round]), -len(order) % per_round)
        steps += [order[at : at + batch_samples] for at in range(0, len(order), batch_samples)]
        per_epoch = -(-len(order) // batch_samples)
    return steps[: math.ceil(epochs * per_epoch)]


def _by_length(lengths: Sequence[int], batch: int, generator: torch.Generator) -> list[int]:
    """A shuffle, sorted by length within groups of some batches (``transformers.trainer_pt_utils``)."""
    size = batch * max(1, min(len(lengths) // (batch * 4), _MOST_STEPS))
    shuffled = torch.randperm(len(lengths), generator=generator).tolist()
    groups = [
        sorted(shuffled[at : at + size], key=lambda i: lengths[i], reverse=True) for at in range(0, len(shuffled), size)
    ]
    longest = max(groups, key=lambda group: lengths[group[0]])
    groups[0][0], longest[0] = longest[0], groups[0][0]
    return [i for group in groups for i in group]


def weigh(samples: Sequence[Example]) -> list[Example]:
    """The samples of an optimiser step, with weights of their labels that sum to 1 over the step.

    The labels of a device share the device's weight equally.
    """
    owners = np.arange(len(samples)) // AT_ONCE % DEVICES
    labels = np.bincount(owners, [len(sample.targets.marks) for sample in samples], DEVICES)
    shares = 1 / (DEVICES * labels[owners])
    return [
        replace(sample, targets=replace(sample.targets, weights=sample.targets.weights * np.float32(share)))
        for sample, share in zip(samples, shares, strict=True)
    ]
