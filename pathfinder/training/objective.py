"""The training objective on trees, and its evaluation.

Loss and gradients equal the sum over the separate published samples (two per record: first labels masked, and
Correctness given the gold first labels). The loss is cross-entropy over the whole vocabulary one token before each
label; the sum is divided by the label weights of the whole optimiser step. A mean for each forward pass would
overweight the labels of short passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import cross_entropy

from pathfinder.models.tokens import LabelIds
from pathfinder.training.examples import Example, Targets
from pathfinder.tree.attention import read_logits
from pathfinder.tree.layout import Backend, TreeBatch, backend_on, batch_trees
from pathfinder.tree.packing import pack
from pathfinder.tree.passes import Prompts


def batches(
    examples: Sequence[Example], token_budget: int, backend: Backend = "cascade"
) -> Iterator[tuple[TreeBatch, Targets]]:
    """Split ``examples`` into forward passes within the token budget."""
    for group in pack([len(example.tree) for example in examples], token_budget):
        yield batch_of([examples[i] for i in group], backend)


def batch_of(examples: Sequence[Example], backend: Backend = "cascade") -> tuple[TreeBatch, Targets]:
    """All ``examples`` in one forward pass."""
    trees = [example.tree for example in examples]
    return batch_trees(trees, backend), Targets.join([example.targets for example in examples])


def summed_loss(
    model: torch.nn.Module, batch: TreeBatch, targets: Targets, ids: LabelIds
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted sum of the readings' cross-entropies, and whether each reading ranks the true label higher.

    The second is bool (readings,). The caller divides the sum by the weights of the whole optimiser step. ``batch`` is
    on the model's device.
    """
    logits = read_logits(model, batch)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    device = logits.device
    positive = torch.from_numpy(targets.positive).to(device)
    weights = torch.from_numpy(targets.weights).to(device, logits.dtype)
    with torch.no_grad():
        correct = (logits[:, ids.good] >= logits[:, ids.bad]) == positive
    return (reading_losses(logits, targets, ids) * weights).sum(), correct


def reading_losses(logits: torch.Tensor, targets: Targets, ids: LabelIds) -> torch.Tensor:
    """The cross-entropy of each reading, (readings,), from its logits, (readings, tokens)."""
    if bool(np.isin(targets.shares, (0, 1)).all()):
        wanted = torch.from_numpy(targets.shares > 0).to(logits.device)
        return cross_entropy(logits, torch.where(wanted, ids.good, ids.bad), reduction="none")
    share = torch.from_numpy(targets.shares).to(logits.device, logits.dtype)
    total = torch.logsumexp(logits, dim=-1)
    return total - share * logits[:, ids.good] - (1 - share) * logits[:, ids.bad]


@torch.no_grad()  # not inference_mode, because a sharded network continues to train with the weights gathered here
def margins(
    model: Any, examples: Sequence[Example], prompter: Prompts, token_budget: int
) -> tuple[npt.NDArray[np.float64], Targets]:
    """The logit of ``<+>`` minus the logit of ``<->`` at each reading of the loss, float64 (readings,), and targets.

    For Correctness, the gold first labels are given, as in training. ``examples`` must not be empty.
    """
    model.train(False)
    found: list[npt.NDArray[np.float64]] = []
    parts: list[Targets] = []
    for batch, wanted in batches(examples, token_budget, backend_on(model.device)):
        logits = read_logits(model, batch.to(model.device, model.dtype))
        found.append((logits[:, prompter.ids.good] - logits[:, prompter.ids.bad]).double().cpu().numpy())
        parts.append(wanted)
    return np.concatenate(found), Targets.join(parts)


def evaluate(
    model: Any, examples: Sequence[Example], prompter: Prompts, token_budget: int
) -> dict[str, dict[str, Any]]:
    """Accuracy, majority accuracy, area under the ROC curve and loss per label, from ``margins``.

    The area is ``None`` if all steps have the same value of the label. The loss concerns the choice between ``<+>`` and
    ``<->``, in nats per label.
    """
    if not examples:
        return {}
    margin, targets = margins(model, examples, prompter, token_budget)
    out: dict[str, dict[str, Any]] = {}
    for mark, label in enumerate(prompter.labels):
        chosen, truth = margin[targets.marks == mark], targets.positive[targets.marks == mark]
        share = float(truth.mean())
        out[label] = {
            "n": len(truth),
            "positive_share": share,
            "accuracy": float(((chosen >= 0) == truth).mean()),
            "majority_accuracy": max(share, 1 - share),
            "auc": area_under_curve(chosen, truth),
            "loss": float(np.logaddexp(0.0, np.where(truth, -chosen, chosen)).mean()),
        }
    return out


def area_under_curve(scores: npt.NDArray[np.float64], positive: npt.NDArray[np.bool_]) -> float | None:
    """The probability that a positive outranks a negative, ties counted half; ``None`` if one class is empty.

    ``scores`` is float64 (n,), ``positive`` bool (n,).
    """
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))
