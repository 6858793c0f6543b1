"""The metrics of a training run, and the rows of its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from pathfinder.core.metrics import Counts, Figure, Metrics, Number, Whole


class HeldOut(Metrics):
    """One label's predictions on the ``n`` steps of the held-out problems, as shares."""

    n: Whole = 0
    positive_share: Figure = None
    accuracy: Number
    majority_accuracy: Figure = None
    auc: Figure = None
    loss: Figure = None


def texts(held_out: Mapping[str, Any], *names: str) -> list[str]:
    """Figures of a label by name as text; a dash for an undefined one."""
    return ["–" if held_out[name] is None else f"{held_out[name]:.3f}" for name in names]


class Train(Metrics):
    """Metrics of a training run; ``too_long`` has the tokens of the first records that the model cannot read."""

    read: Whole = 0
    kept: Whole = 0
    dropped: Counts = {}
    quarantined: Counts = {}
    train_trees: Whole = 0
    test_trees: Whole = 0
    train_records: Whole
    train_samples: Whole = 0
    tokens_an_epoch: Whole | None = None
    tokens_an_epoch_as_samples: Whole | None = None
    optimiser_steps: Whole
    final_loss: Number
    sources: Counts
    too_long_records: Whole = 0
    too_long: Counts = {}
    test_labels: dict[str, HeldOut] = {}


class LogRow(Metrics):
    """A row of the log, with the losses and accuracies of each label (``held_out_loss_math``) and the keys below."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number]
    step: Whole
    loss: Number
    learning_rate: Number = 0.0

    def held_out(self, figure: str, label: str) -> float | None:
        """The held-out ``loss`` or ``accuracy`` of a label; ``None`` between the points of the learning curve."""
        return self.__pydantic_extra__.get(f"held_out_{figure}_{label}")


LOG = TypeAdapter(list[LogRow])
"""The form of ``metrics/train/<run>_log.json``."""
