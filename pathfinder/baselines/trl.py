"""A checkpoint of TRL's PRMTrainer: two classes read at the separator after every step. It is a form, not one model.

Source: huggingface/trl@0161f79 ``trl/experimental/prm/prm_trainer.py`` (``tokenize_row``: a beginning token if the
tokenizer has one, the prompt, and each step tokenised by itself and followed by the separator's tokens, of which the
last has the label) and ``prm_config.py`` (the separator is a line break unless it was set, which a checkpoint does not
record). The second of two classes is a correct step. TRL names no threshold; 0.5 is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ground.io import DataError
from pathfinder.baselines.adapter import AUTHORS, Encoded, Head, Method, System, Text, Weights
from pathfinder.baselines.heads import class_head
from pathfinder.core.steps import Solution

SEPARATOR = "\n"


@dataclass(frozen=True, slots=True)
class Trl:
    """Problem and steps without a chat template."""

    forbidden: tuple[str, ...] = ()

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """``[bos]problem``, then every step and a separator."""
        start = text.tokenizer.bos_token_id
        ids = ([] if start is None else [start]) + text.ids(text.safe(solution.problem))
        separator, reads = text.ids(SEPARATOR), []
        for step in solution.steps:
            ids += [*text.ids(text.safe(step)), *separator]
            reads.append(len(ids) - 1)
        return Encoded(np.asarray(ids, dtype=np.int32), tuple(reads))

    def head(self, text: Text, weights: Weights) -> Head:
        """One linear layer, ``score``. Raises ``DataError`` unless it has two classes."""
        weight = weights("score.weight")
        if len(weight) != 2:
            raise DataError(f"the model has {len(weight)} classes, expected 2, wrong and correct; give another model")
        return class_head([(weight, weights("score.bias"))], [1])


SYSTEM = System(name="trl", titles=(), methods={AUTHORS: Method(Trl())})
