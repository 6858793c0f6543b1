"""Math-PSA-7B: five newlines after every step, P(`` +``) against `` -`` at that token.

Sources: openreasoner/openr@54ae004 ``prm/infer_fns.py`` (tag and label tokens), ``prm/code/test_qwen.py`` and
``reason/inference/rm_call.py`` (``{question} {answer}``, steps stripped, `` \\n\\n\\n\\n\\n`` after each, a space
before the next). The published repository openreasoner/Math-psa contains a LoRA adapter for Qwen2.5-Math-7B-Instruct
(``checkpoint-2127``), which ``backbone`` merges from the folder ``lora``. The
model card is empty and names no threshold; openr's training script measures accuracy at 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass

from pathfinder.baselines.adapter import AUTHORS, Encoded, Head, Method, Piece, System, Text, Weights
from pathfinder.baselines.heads import token_head
from pathfinder.core.steps import Solution

TAG = "\n\n\n\n\n"


@dataclass(frozen=True, slots=True)
class MathPSA:
    """One run of newlines per step. A space and the newlines are one token of the Qwen2.5 tokenizer."""

    forbidden: tuple[str, ...] = (TAG,)

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """``problem step \\n\\n\\n\\n\\n step \\n\\n\\n\\n\\n``.

        openr leaves out empty steps, so an empty step gets the reading of the step before it. An empty first step keeps
        its newlines.
        """
        steps = [text.safe(step.strip()) for step in solution.steps]
        problem = text.safe(solution.problem)
        pieces = [Piece(problem if any(steps[:1]) else problem.rstrip())]
        for number, step in enumerate(steps):
            tagged = f" {step} {TAG}" if step else f" {TAG}"
            pieces.append(Piece(tagged if step or not number else "", read=True))
        return text.encode(pieces)

    def head(self, text: Text, weights: Weights) -> Head:
        """Rows of `` +`` and `` -`` of the language model's head."""
        text.exact(f" {TAG}")
        return token_head(weights, text.exact(" + -", 2))


SYSTEM = System(
    name="math-psa",
    titles=("Math-PSA-7B",),
    methods={AUTHORS: Method(MathPSA())},
)
