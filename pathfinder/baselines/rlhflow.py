"""RLHFlow-Mistral-8B and RLHFlow-DeepSeek-8B: a chat with one user turn per step, and ``+`` as every answer.

Sources: RLHFlow/RLHF-Reward-Modeling@fc39179 ``math-rm/prm_evaluate.py`` and ``math-rm/README.md`` (first turn
``problem step``, steps stripped, P(``+``) against ``-`` at the token before the answer). Two evaluators differ.
ssmisya/PRMBench@a1ae4ea ``mr_eval/models/llama3_1_8b_prm.py`` removes the numbers of the steps and takes P(``+``) over
the whole vocabulary. QwenLM/ProcessBench@e802463 ``code/run_eval_prm_rlhflow.py`` joins ``problem\\n\\nstep`` and takes
the most likely token, which equals the two-token rule at 0.5 whenever that token is ``+`` or ``-``. The authors rank
solutions and name no threshold; 0.5 is the threshold of both evaluators.
"""

from __future__ import annotations

from dataclasses import dataclass

from pathfinder.baselines.adapter import AUTHORS, Encoded, Head, Method, Piece, System, Text, Weights, as_prmbench
from pathfinder.baselines.heads import token_head
from pathfinder.core.prompts import unnumbered
from pathfinder.core.steps import Solution


@dataclass(frozen=True, slots=True)
class RLHFlow:
    """Each step is a user turn; every answer in the prompt is ``+``, as in the authors' loop."""

    glue: str = " "
    """The text between the problem and the first step."""
    unnumber: bool = False
    full: bool = False
    """True if the score is P(``+``) over the whole vocabulary, not against ``-`` only."""
    forbidden: tuple[str, ...] = ()

    def encode(self, text: Text, solution: Solution) -> Encoded:
        """The chat template's text around the steps; each is read at the last token before its ``+``."""
        frame = text.frame(("user", "assistant") * len(solution.steps))
        turns = [text.safe(unnumbered(step) if self.unnumber else step.strip()) for step in solution.steps]
        if turns:
            turns[0] = (text.safe(solution.problem) + self.glue + turns[0]).strip()  # as Llama's template does
        pieces = [Piece(frame[0])]
        for number, turn in enumerate(turns):
            pieces += [Piece(turn), Piece(frame[2 * number + 1], read=True), Piece("+"), Piece(frame[2 * number + 2])]
        return text.encode(pieces, begin=False)  # the template writes the beginning token itself

    def head(self, text: Text, weights: Weights) -> Head:
        """Rows of ``+`` and ``-`` of the language model's head, or all of them."""
        return token_head(weights, text.exact("+") + text.exact("-"), self.full)


def _system(name: str, title: str) -> System:
    return System(
        name=name,
        titles=(title, title.replace("RLHFlow-", "RLHFlow-PRM-")),
        methods={
            AUTHORS: Method(RLHFlow()),
            "prmbench": as_prmbench(RLHFlow(unnumber=True, full=True)),
            "processbench": Method(RLHFlow(glue="\n\n")),
        },
    )


MISTRAL = _system("rlhflow-mistral", "RLHFlow-Mistral-8B")
DEEPSEEK = _system("rlhflow-deepseek", "RLHFlow-DeepSeek-8B")
