"""Qwen2.5-Math-PRM-7B and Qwen2.5-Math-7B-PRM800K: two classes at the ``<extra_0>`` after every step.

Sources: model cards of both (chat with the system prompt below, steps joined by ``<extra_0>`` in the assistant's
turn, the second of two class probabilities); head ``score.0``, ReLU, ``score.2`` as vLLM's
``model_executor/models/qwen2_rm.py`` loads it. ssmisya/PRMBench@a1ae4ea ``mr_eval/models/qwen_prm.py`` removes the
numbers of the steps, and its system prompt contains a backspace, because ``"\\b"`` is one in Python (the card was
corrected later). It has no results of Qwen2.5-Math-7B-PRM800K: the paper's are R-PRM's, which follow the model card
(NJUNLP/R-PRM@e3dd605 ``src/evaluate/PRMBench/code/evaluate-qwen-prmbench.py``). The threshold 0.5 is PRMBench's; the
cards name none and read the score as a probability.
"""

from __future__ import annotations

from dataclasses import dataclass

from pathfinder.baselines.adapter import AUTHORS, Encoded, Head, Method, Piece, System, Text, Weights, as_prmbench
from pathfinder.baselines.heads import class_head
from pathfinder.core.prompts import unnumbered
from pathfinder.core.steps import Solution

MARKER = "<extra_0>"
PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True, slots=True)
class Qwen:
    """One assistant turn with a marker after every step."""

    system: str = PROMPT
    unnumber: bool = False
    forbidden: tuple[str, ...] = (MARKER,)

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """The chat template's text around the steps."""
        before, between, after = text.frame(("user", "assistant"), self.system)
        pieces = [Piece(before + text.safe(solution.problem) + between)]
        for step in solution.steps:
            body = text.safe(unnumbered(step) if self.unnumber else step)
            pieces += [Piece(body), Piece(MARKER, read=True)]
        return text.encode([*pieces, Piece(after)])

    def head(self, text: Text, weights: Weights) -> Head:
        """Two linear layers, ``score.0`` and ``score.2``."""
        text.exact(MARKER)
        layers = [(weights(f"score.{layer}.weight"), weights(f"score.{layer}.bias")) for layer in (0, 2)]
        return class_head(layers, [1])


PRM = System(
    name="qwen-prm",
    titles=("Qwen2.5-Math-PRM-7B",),
    methods={
        AUTHORS: Method(Qwen()),
        "prmbench": as_prmbench(Qwen(system=PROMPT.replace("\\b", "\b"), unnumber=True)),
    },
)
PRM800K = System(name="qwen-prm800k", titles=("Qwen2.5-Math-7B-PRM800K",), methods={AUTHORS: Method(Qwen())})
