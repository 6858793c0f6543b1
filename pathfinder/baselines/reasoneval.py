"""ReasonEval-7B: three classes (wrong, neutral, right) at the end of every step; valid means neutral or right.

Source: GAIR-NLP/ReasonEval@6c91c7a ``codes/examples.py`` (prompt, separators, ``score_head``, validity) and
``codes/mr-gsm8k_eval.py`` (threshold 0.5). The text is tokenised with the padding token between the steps, which is
then removed. The 7B tokenizer pads with its beginning token. The script removes that token too, puts id 1 back in
front and does not shift the positions, so a step is read one token *before* its last. The training code is not
published. The reading is kept as published, because the published figures were measured with it.
ssmisya/PRMBench@a1ae4ea ``mr_eval/models/reasoneval.py`` also removes the numbers of the steps. There, a step is
redundant if P(neutral) exceeds 0.15. The authors' code names no threshold of redundancy, so only the evaluator's
convention judges it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ground.io import DataError
from pathfinder.baselines.adapter import AUTHORS, Encoded, Head, Method, Piece, Rule, System, Text, Weights, as_prmbench
from pathfinder.baselines.heads import class_head
from pathfinder.core.prompts import unnumbered
from pathfinder.core.steps import Solution

_BEGIN = 1
_PROMPT = "Question:\n{problem}\nAnswer:\nLet's think step by step.\n"


@dataclass(frozen=True, slots=True)
class ReasonEval:
    """No text separates the steps."""

    unnumber: bool = False
    forbidden: tuple[str, ...] = ()

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """The prompt without its separators, which mark step ends; raises ``DataError`` without a padding token."""
        separator = text.tokenizer.pad_token
        if separator is None:
            raise DataError("the tokenizer has no padding token, but ReasonEval separates steps with it; set pad_token")
        pieces = [Piece(_PROMPT.replace("{problem}", text.safe(solution.problem)) + separator)]
        for step in solution.steps:
            pieces.append(Piece(text.safe(unnumbered(step) if self.unnumber else step) + separator))
        with_separators = text.encode(pieces).ids
        places = np.flatnonzero(with_separators == text.exact(separator)[0])
        extra = len(places) - len(solution.steps)  # after the prompt, and a beginning token that is the padding
        ids = np.delete(with_separators, places)
        if extra == 2:
            ids = np.concatenate([np.asarray([_BEGIN], dtype=np.int32), ids])
        elif extra != 1:
            raise DataError(
                f"{solution.id}: {len(places)} separators in its prompt, expected one more than its "
                f"{len(solution.steps)} steps; use the published system's own model folder"
            )
        reads = (places - 1 - np.arange(len(places)))[extra:]
        return Encoded(ids, tuple(reads.tolist()))

    def head(self, text: Text, weights: Weights) -> Head:
        """``score_head``: wrong, neutral, right. A neutral step is correct and redundant."""
        bias = weights("score_head.bias") if "score_head.bias" in weights else None
        return class_head([(weights("score_head.weight"), bias)], [1, 2], [1])


SYSTEM = System(
    name="reasoneval",
    titles=("ReasonEval-7B",),
    methods={AUTHORS: Method(ReasonEval()), "prmbench": as_prmbench(ReasonEval(unnumber=True), Rule(redundancy=0.15))},
)
