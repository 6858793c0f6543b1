"""ReasonEval-7B: three classes (wrong, neutral, right) at the end of every step; valid is neutral or right.

Source: GAIR-NLP/ReasonEval@6c91c7a ``codes/examples.py`` (prompt, separators, ``score_head``, validity) and
``codes/mr-gsm8k_eval.py`` (threshold 0.5). The text is tokenised with the padding token between the steps, which is
then taken out. The 7B tokenizer pads with its beginning token; the script takes that out too, puts 1 back in front,
and does not move the places along, so that a step is read one token *before* its last. Training is not published;
the reading is kept as published, since the published figures came of it. ssmisya/PRMBench@a1ae4ea
``mr_eval/models/reasoneval.py`` also takes the numbers off the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pathfinder.baselines.adapter import AUTHORS, Encoded, Method, Piece, System, Text, Weights, unnumbered
from pathfinder.baselines.heads import ClassHead
from pathfinder.core.io import DataError
from pathfinder.prm.scoring import Solution

_BEGIN = 1
_PROMPT = "Question:\n{problem}\nAnswer:\nLet's think step by step.\n"


@dataclass(frozen=True, slots=True)
class ReasonEval:
    """Steps behind one another, nothing between them."""

    unnumber: bool = False
    forbidden: tuple[str, ...] = ()

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """The separators mark the places and leave no token."""
        separator = text.tokenizer.pad_token
        if separator is None:
            raise DataError("the tokenizer has no padding token, which ReasonEval separates steps with; set pad_token")
        pieces = [Piece(_PROMPT.replace("{problem}", text.safe(solution.problem)) + separator)]
        for step in solution.steps:
            pieces.append(Piece(text.safe(unnumbered(step) if self.unnumber else step) + separator))
        with_separators = text.encode(pieces).ids
        places = np.flatnonzero(with_separators == text.one(separator))
        extra = len(places) - len(solution.steps)  # the prompt's own, and the beginning token where it is the same
        ids = np.delete(with_separators, places)
        if extra == 2:
            ids = np.concatenate([np.asarray([_BEGIN], dtype=np.int32), ids])
        elif extra != 1:
            raise DataError(f"{solution.id}: {len(places)} separators for {len(solution.steps)} steps in its prompt")
        reads = (places - 1 - np.arange(len(places)))[extra:]
        return Encoded(ids, tuple(reads.tolist()))

    def head(self, text: Text, weights: Weights) -> ClassHead:
        """``score_head``: wrong, neutral, right."""
        bias = weights("score_head.bias") if "score_head.bias" in weights else None
        return ClassHead(((weights("score_head.weight"), bias),), good=(1, 2))


SYSTEM = System(
    name="reasoneval",
    titles=("ReasonEval-7B",),
    repository="GAIR/ReasonEval-7B",
    sources=(
        "GAIR-NLP/ReasonEval@6c91c7a codes/examples.py",
        "GAIR-NLP/ReasonEval@6c91c7a codes/mr-gsm8k_eval.py",
        "ssmisya/PRMBench@a1ae4ea mr_eval/models/reasoneval.py",
    ),
    methods={AUTHORS: Method(ReasonEval()), "prmbench": Method(ReasonEval(unnumber=True))},
)
