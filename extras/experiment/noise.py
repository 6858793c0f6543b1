"""Labels that are wrong at random, as Monte-Carlo labels are: their rates, estimated without the truth, and the loss.

Confident learning (Northcutt et al. 2021) estimates the rates from predictions for records that a model did not learn
from. The forward correction (Patrini et al. 2017) compares the predicted distribution of *observed* labels.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import Tensor

from ground.io import DataError
from pathfinder.models.tokens import LabelIds

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class Flips(NamedTuple):
    """The shares of wrong labels among the steps without an error and among the steps with an error."""

    false_minus: float
    false_plus: float


def flipped(trees: pl.DataFrame, flips: Flips, seed: int) -> tuple[pl.DataFrame, Flips]:
    """The records with labels flipped at random, and the shares that were flipped.

    A step without an error gets a math error; a step with one gets none and is called correct.
    """
    rng, rows = random.Random(f"{seed}/flips"), trees.to_dicts()
    counts = np.zeros((2, 2))
    for row in rows:
        for branch in row["branches"]:
            is_wrong = not (branch["math"] and branch["consistency"])
            is_flipped = rng.random() < flips[is_wrong]
            counts[int(is_wrong)] += is_flipped, 1
            if is_flipped:
                branch |= {"math": int(is_wrong), "consistency": 1, "correctness": int(is_wrong)}
    shares = counts[:, 0] / np.maximum(counts[:, 1], 1)
    return pl.DataFrame(rows, schema=trees.schema), Flips(*(round(float(share), 4) for share in shares))


def estimated(observed: Flags, chances: Floats) -> Flips:
    """The rates of flips by confident learning.

    ``observed`` is true for a label without an error, and ``chances`` the predicted probability of such a label, from a
    model that did not learn from the record. A record is surely of a class if its probability reaches the mean of the
    records with that label; if it reaches both, the likelier class counts. Raises ``DataError`` without both labels.
    """
    if observed.all() or not observed.any():
        raise DataError("all records have one label, so the rate of wrong labels cannot be estimated")
    good, bad = chances >= chances[observed].mean(), 1 - chances >= (1 - chances)[~observed].mean()
    good, bad = good & ~(bad & (chances < 0.5)), bad & ~(good & (chances >= 0.5))
    joint = np.array([[float((sure & (observed == label)).sum()) for label in (False, True)] for sure in (good, bad)])
    # calibrated so that each observed label has as many records as there are
    joint *= np.array([(~observed).sum(), observed.sum()]) / np.maximum(joint.sum(0), 1)
    shares = joint / np.maximum(joint.sum(1, keepdims=True), 1)
    return Flips(round(float(shares[0, 0]), 4), round(float(shares[1, 1]), 4))


def corrected(logits: Tensor, ids: LabelIds, flips: Flips) -> Tensor:
    """The log-probabilities of the observed labels, from logits of the true ones: (..., vocabulary).

    They equal the log-softmax of the logits, except at the labels ``<+>`` and ``<->``.
    """
    chances, labels = logits.log_softmax(-1), torch.tensor([ids.good, ids.bad], device=logits.device)
    kept = torch.tensor([[1 - flips[0], flips[0]], [flips[1], 1 - flips[1]]], device=logits.device).log()
    return chances.index_copy(-1, labels, (chances[..., labels, None] + kept).logsumexp(-2))
