"""Skywork-PRM-7B: a value head at the line break that ends every step.

Sources: SkyworkAI/skywork-o1-prm-inference@719b56b ``model_utils/io_utils.py`` (beginning token, problem, newline;
each line tokenised separately and followed by the step token), ``model_utils/prm_model.py`` (``v_head.summary``, a
sigmoid) and ``README.md`` (the step token is ``\\n``). There, a step of several lines has one reward per line; here the
reward of the last line is the step's reward. ssmisya/PRMBench@a1ae4ea ``mr_eval/models/skywork_prm.py`` differs: it
writes ``Step 1: … ки`` with ``ки`` as the step token, and a step is correct unless its score falls by 0.05 or more from
the score of the step before (the first score counts as a rise from 0). It splits the text at ``ки``, so the newline
after the last step becomes one more part with a score and a verdict. The authors name no threshold; 0.5 is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ground.io import DataError
from pathfinder.baselines.adapter import AUTHORS, Encoded, Head, Method, Rule, System, Text, Weights, as_prmbench
from pathfinder.baselines.heads import scalar_head
from pathfinder.core.prompts import unnumbered
from pathfinder.core.steps import Solution


@dataclass(frozen=True, slots=True)
class Skywork:
    """Each step is tokenised separately and followed by the step token."""

    forbidden: tuple[str, ...] = ()

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """``<bos>problem\\n`` and the lines of the steps."""
        lines = [text.safe(step.strip()).split("\n") for step in solution.steps]
        return _joined(text, solution.problem, lines, "\n")

    def head(self, text: Text, weights: Weights) -> Head:
        """``v_head.summary``."""
        return scalar_head(weights("v_head.summary.weight")[0], weights("v_head.summary.bias")[0])


@dataclass(frozen=True, slots=True)
class SkyworkAsPRMBench(Skywork):
    """PRMBench's prompt, with numbered steps and Math-Shepherd's step token."""

    forbidden: tuple[str, ...] = ("ки",)

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """``<bos>problem\\n``, ``Step 1: … ки`` for each step, a newline before each except the first, and one more."""
        steps = [text.safe(unnumbered(step)) for step in solution.steps]
        lines = [[f"{chr(10) if number else ''}Step {number + 1}: {step} "] for number, step in enumerate(steps)]
        return _joined(text, solution.problem, [*lines, ["\n"]], "ки")


def _joined(text: Text, problem: str, steps: list[list[str]], token: str) -> Encoded:
    start = text.tokenizer.bos_token
    if start is None:
        raise DataError("the tokenizer has no beginning token, but Skywork's prompt starts with it; set bos_token")
    ids = text.ids(f"{start}{text.safe(problem)}\n")
    last = text.ids(token)[-1]
    reads = []
    for lines in steps:
        for line in lines:
            ids += [*text.ids(line), last] if line else [last]
        reads.append(len(ids) - 1)
    return Encoded(np.asarray(ids, dtype=np.int32), tuple(reads))


SYSTEM = System(
    name="skywork",
    titles=("Skywork-PRM-7B",),
    methods={AUTHORS: Method(Skywork()), "prmbench": as_prmbench(SkyworkAsPRMBench(), Rule(-0.05, change=True))},
)
