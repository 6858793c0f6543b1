"""Llemma-PRM800K-7B: the sigmoid of the mean logit at the first newline after every step.

Sources: model card of ScalableMath/llemma-7b-prm-prm800k-level-1to3-hf (prompt, reading positions),
Edward-Sun/easy-to-hard@cf1d6d8 ``inference_reward.py`` (the score is read at the first of the two newline tokens)
and ``models/reward_model.py`` (the mean over the output rows), ssmisya/PRMBench@a1ae4ea
``mr_eval/models/llemma7b_prm.py`` (sigmoid, threshold 0.5). The tokenizer is EleutherAI/llemma_7b's. A blank line
ends a step, so blank lines inside a step become plain line breaks. PRMBench deletes them, and reads one place too many:
it takes the blank line after the heading for the first step, so a step gets the score of the step before it. The
authors name no threshold. It is assumed that each newline is a token, as in Llama 2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pathfinder.baselines.adapter import AUTHORS, Encoded, Head, Method, Piece, System, Text, Weights, as_prmbench
from pathfinder.baselines.heads import LM_HEAD, scalar_head
from pathfinder.core.steps import Solution

_BLANK = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True)
class Llemma:
    """A blank line follows each step."""

    forbidden: tuple[str, ...] = ()

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """``# Question\\n\\n…\\n\\n# Solution\\n\\nstep\\n\\nstep\\n\\n``."""
        pieces = [Piece(f"# Question\n\n{text.safe(solution.problem)}\n\n# Solution\n\n")]
        for step in solution.steps:
            pieces += [Piece(_BLANK.sub("\n", text.safe(step.strip())) + "\n", read=True), Piece("\n")]
        return text.encode(pieces)

    def head(self, text: Text, weights: Weights) -> Head:
        """The mean of all rows of ``lm_head.weight``, which gives the mean logit without computing every logit."""
        return scalar_head(weights(LM_HEAD).double().mean(dim=0))


@dataclass(frozen=True, slots=True)
class LlemmaAsPRMBench(Llemma):
    """The readings of PRMBench: every pair of newlines from the end of the heading on."""

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """The same text, but with readings after the heading and before each empty step, too."""
        pieces = [Piece(f"# Question\n\n{text.safe(solution.problem)}\n\n# Solution\n", read=True)]
        for step in solution.steps:
            body = text.safe(step.replace("\n\n", "").strip())
            pieces += [Piece("\n", read=not body), Piece(f"{body}\n", read=True)]
        return text.encode([*pieces, Piece("\n")])


SYSTEM = System(
    name="llemma",
    titles=("Llemma-PRM800K-7B", "Lemma-PRM800k-7B"),
    methods={AUTHORS: Method(Llemma()), "prmbench": as_prmbench(LlemmaAsPRMBench())},
)
