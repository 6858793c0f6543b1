"""Math-Shepherd-7B: `` ки`` after every step, P(``+``) against ``-`` at that token.

Sources: model card of peiyi9979/math-shepherd-mistral-7b-prm (question, a space, a line ``Step 1: … ки`` per
step; softmax over the ids of ``+`` and ``-`` at the positions of ``ки``), as quoted in openreasoner/openr@54ae004
``prm/infer_fns.py`` and ssmisya/PRMBench@a1ae4ea ``mr_eval/models/math_shepherd.py``, which agree. PRMBench
numbers steps that do not begin with "Step" and uses the threshold 0.5. The authors rank
solutions and name no threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

from pathfinder.baselines.adapter import AUTHORS, Encoded, Head, Method, Piece, System, Text, Weights, as_prmbench
from pathfinder.baselines.heads import token_head
from pathfinder.core.steps import Solution

TAG = "ки"


@dataclass(frozen=True, slots=True)
class MathShepherd:
    """One line per step."""

    forbidden: tuple[str, ...] = (TAG,)

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """``problem Step 1: … ки\\nStep 2: … ки\\n``."""
        pieces = [Piece(f"{text.safe(solution.problem)} ")]
        for number, step in enumerate(solution.steps, start=1):
            body = text.safe(step.strip())
            numbered = body if body.startswith(("Step", "step")) else f"Step {number}: {body}"
            pieces += [Piece(f"{numbered} "), Piece(TAG, read=True), Piece("\n")]
        return text.encode(pieces)

    def head(self, text: Text, weights: Weights) -> Head:
        """Rows of ``+`` and ``-`` of the language model's head."""
        text.exact(TAG)
        return token_head(weights, text.exact("+ -", 2))


SYSTEM = System(
    name="math-shepherd",
    titles=("Math-Shepherd-7B",),
    methods={AUTHORS: Method(MathShepherd()), "prmbench": as_prmbench(MathShepherd())},
)
