"""Checkpoints of TRL's PRMTrainer: two classes read at the separator after every step. This is a form, not one model.

Source: huggingface/trl@0161f79 ``trl/experimental/prm/prm_trainer.py`` (``tokenize_row``: a beginning token if the
tokenizer has one, the prompt, and each step tokenised separately and followed by the separator's tokens; the last token
has the label) and ``prm_config.py`` (the separator is a line break unless set otherwise; a checkpoint of ``pathfinder
train`` records it, TRL's own does not). The second of two classes is a correct step. TRL names no threshold; 0.5 is
ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from ground.io import DataError
from pathfinder.baselines.adapter import AUTHORS, Encoded, Head, Method, System, Text, Weights
from pathfinder.baselines.heads import class_head
from pathfinder.core.steps import Solution
from pathfinder.tree.separated import CLASSES, CORRECT


@dataclass(frozen=True, slots=True)
class Trl:
    """Problem and steps without a chat template."""

    forbidden: tuple[str, ...] = ()

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """``[bos]problem``, then every step and a separator."""
        return Encoded(*text.separated.solution(solution.problem, solution.steps))

    def head(self, text: Text, weights: Weights) -> Head:
        """One linear layer, ``score``. Raises ``DataError`` unless it has two classes."""
        weight = weights("score.weight")
        if len(weight) != len(CLASSES):
            raise DataError(f"the model has {len(weight)} classes, expected 2, wrong and correct; give another model")
        return class_head([(weight, weights("score.bias"))], [CORRECT])


SYSTEM = System(name="trl", titles=(), methods={AUTHORS: Method(Trl())})
