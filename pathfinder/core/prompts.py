"""The prompts of the method, word for word, pinned by digest.

Every text sent to a model is written here: the judge's grading prompt, the policy's prompt and the PRM's two-pass
prompt, each in the wording of its published script. ``DIGESTS`` pins the constants; a test compares them.

Source: paper sections 3.2-3.4 and appendix "Data Annotation Prompt"; declare-lab/PathFinder-PRM at 2f80ed4
(``src/data_generation/prompt.py``, ``build_dataset.py``, ``src/evaluation/**``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

GOOD = "<+>"
BAD = "<->"
MASK = "<extra>"
LABEL_TOKENS: tuple[str, str, str] = (GOOD, BAD, MASK)
"""The tokens that the method adds to the vocabulary, in the order of their ids."""

STEP_SEPARATOR = "\n\n"
END_OF_TURN = "<|im_end|>"

JUDGE_PROMPT = """
You are an analytical math instructor grading a student's work. Think step-by-step through your analysis. Below is the math question, previous steps by the student, and current step to evaluate.

{context}

Your task is to rigorously examine the current step and determine if it contains ANY mathematical errors. Assign binary scores (0 = wrong, 1 = correct) based on three criteria:

A) Mathematical logic — Is the current step, **on its own**, mathematically valid? Check for:
   • Calculation errors
   • Incorrect formula application 
   • Invalid operations or simplifications
   • Algebra mistakes or sign errors
   • Incorrect assertions

B) Consistency — Is the current step logically consistent with:
   • Established ground truth
   • Previous steps
   • Any constraints or conditions established earlier
   • The mathematical domain applicable to this problem

C) Simplicity and optimality — is this step an efficient next step toward the solution? Check for:
   • Redundant statements: factually correct statements that do not help progress toward the solution.
   • Circular logic: does this step come to a conclusion already previously established?
   • Non-clarity: Are the assertions made in this step ambiguous in a way that obsfucates their purpose?
   • Optimality: is the **idea** of this step the near optimal approach one would take to solve the problem?


Double check all listed criterion here explicitly in your reasoning. In your analysis, be sensitive to subtle issues like missing pre-requisites/assumptions, correct-looking statements with slight errors and high confidence statements containing errors.

IMPORTANT POINTS: 

- If you find ANY error, even a minor one, you MUST assign a score of 0 to the appropriate criteria. Be skeptical and verify all claims thoroughly.

- For incorrect steps, wherever possible, attempt to categorize the issue as violating **one of the three criterion** (i.e., assign score 0 to **only one category**). Assign multiple 0 scores only for serious errors.

You must format your answer as below:

Reasoning:
{{Provide detailed analysis, showing all verification steps and explicitly identifying any errors found}}

Final answers:
Score A: 
{{0 or 1 only}}
Score B: 
{{0 or 1 only}}
Score C:
{{0 or 1 only}}


"""

SYSTEM_TRAINING = (
    "You are a Math Teacher. Given a question and a student's solution, evaluate the mathematical correctness, "
    "logic consistency of the current step and whether it will lead to the correct final solution"
)
SYSTEM_PRMBENCH = (
    "You are a Math Teacher. Given a question and a student's solution, evaluate the mathematical correctness "
    "and logic consistency of the current step."
)
SYSTEM_SEARCH = SYSTEM_TRAINING.replace("mathematical", "mathemetical")  # the published script's spelling

POLICY_PROMPT = """<|im_start|>system
You are Qwen, created by Alibaba Cloud. You are a helpful math problem solving assistant. Please reason step by step, and put your final answer within \\boxedleft-bracketsright-brackets.<|im_end|>
<|im_start|>user
{question}<|im_end|>
<|im_start|>assistant
{previous_steps}"""

DIGESTS = {
    "JUDGE_PROMPT": "d3819ddb62ec12ca",
    "SYSTEM_TRAINING": "191c9a2f48a8e4bd",
    "SYSTEM_PRMBENCH": "6a68281090275995",
    "SYSTEM_SEARCH": "3ba238b1a1d03a26",
    "POLICY_PROMPT": "c96a8b66fe08e7a4",
}
"""First 16 hexadecimal digits of the sha256 of each published constant (UTF-8)."""


def digest(text: str) -> str:
    """First 16 hexadecimal digits of the sha256 of ``text`` in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def judge_context(problem: str, prefix: Sequence[str], step: str, indent: int = 0) -> str:
    """The ``{context}`` of the judge prompt: problem, partial solution, current step.

    ``indent`` is the number of spaces before each line of the frame: 0 (repaired), 16 (published, PRM800K) or
    20 (published, RLHFlow-Mistral). Source: ``load_data.py``, ``load_data_mistral.py``.
    """
    pad = " " * indent
    lines = (
        "",
        "[Math Problem]",
        problem,
        "[Partial Solution]",
        "<previous_steps>",
        STEP_SEPARATOR.join(prefix),
        "</previous_steps>",
        "<current_step>",
        step,
        "</current_step>",
        "",
    )
    return f"\n{pad}".join(lines)


def judge_prompt(problem: str, prefix: Sequence[str], step: str, indent: int = 0) -> str:
    """The judge's complete user turn for one step (paper appendix "Data Annotation Prompt")."""
    return JUDGE_PROMPT.format(context=judge_context(problem, prefix, step, indent))


def policy_prompt(problem: str, steps: Sequence[str]) -> str:
    """The raw chat text that the policy continues with the next step (published search prompt, braces repaired).

    The published script also replaces the words "left-brackets" inside the problem; this function replaces only those
    of the template.
    """
    template = POLICY_PROMPT.replace("left-brackets", "{{").replace("right-brackets", "}}")
    done = STEP_SEPARATOR.join(steps) + STEP_SEPARATOR if steps else ""
    return template.format(question=problem, previous_steps=done)


Label = Literal["math", "consistency", "error_free", "correctness"]


@dataclass(frozen=True, slots=True)
class Mark:
    """One label slot of a PRM prompt: the caption before it, and the label."""

    caption: str
    label: Label


@dataclass(frozen=True, slots=True)
class Variant:
    """The labels that a PRM predicts: ``first`` independently of one another, then ``second`` given those.

    With ``sequential``, every label sees the labels before it in one pass (the autoregressive alternative of the paper's
    appendix "Design Choice").
    """

    name: str
    first: tuple[Mark, ...]
    second: tuple[Mark, ...]
    sequential: bool = False


_MATH = Mark("Math reasoning", "math")
_CONSISTENCY = Mark("Consistency", "consistency")
_ERROR_FREE = Mark("Error check", "error_free")
_CORRECTNESS = Mark("Correctness", "correctness")

VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in (
        Variant("full", (_MATH, _CONSISTENCY), (_CORRECTNESS,)),
        Variant("no_error_categories", (_ERROR_FREE,), (_CORRECTNESS,)),
        Variant("no_subtasks", (_CORRECTNESS,), ()),
        Variant("autoregressive", (_MATH, _CONSISTENCY), (_CORRECTNESS,), sequential=True),
    )
}
"""The paper's model and its ablations (section 5.3; ``build_dataset_ablation.py`` for ``no_subtasks``; the wording of
``no_error_categories`` is ours, the published code does not contain it)."""


def user_turn(problem: str, system: str = SYSTEM_TRAINING) -> str:
    """The PRM's user turn; the space before "Question" is the published one (``build_dataset.py``)."""
    return f"{system}{STEP_SEPARATOR} Question: {problem}"


def assistant_turn(
    prefix: Sequence[str],
    step: str,
    marks: Sequence[tuple[str, str]],
    lead: str = "Current Step: ",
) -> str:
    """The PRM's assistant turn up to and including its marks.

    ``marks`` are ``(caption, token)`` pairs, e.g. ``("Math reasoning", "<extra>")``. ``lead`` is "Current step: " in
    the published PRMBench runner.
    """
    before = STEP_SEPARATOR.join(prefix) + STEP_SEPARATOR if prefix else ""
    return f"{before}{lead}{step} " + ", ".join(f"{caption}: {token}" for caption, token in marks)
