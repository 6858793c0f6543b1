"""The published prompts of LLM judges on ProcessBench and PRMBench, word for word, pinned by digest.

Sources: ``CRITIQUE_PROMPT`` is QwenLM/ProcessBench at e802463, ``code/templates/critique_template.txt`` (quoted by the
paper's appendix; the data set's licence is Apache-2.0). The others are ssmisya/PRMBench at a1ae4ea,
``mr_eval/utils/prompts.py`` (Apache-2.0), with two solved examples, and ``mr_eval/models/openai_models.py``.

Untrusted text cannot leave its place: what reads as a special token, or as a paragraph's tag inside a paragraph, is
broken by a word joiner. Text without either is as published.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal

from pathfinder.models.tokens import neutralise

Turn = tuple[Literal["system", "user", "assistant"], str]
"""Who speaks, and what."""

CRITIQUE_PROMPT = """The following is a math problem and a solution (split into paragraphs, enclosed with tags and indexed from 0):

[Math Problem]

{problem}

[Solution]

{tagged_response}

Your task is to review and critique the solution paragraph by paragraph. Once you identify an error in a paragraph, return the index of the paragraph where the earliest error occurs. Otherwise, return the index of -1 (which typically denotes "not found").

Please put your final answer (i.e., the index) in \\boxed{{}}."""

PRMBENCH_PROMPT = """
You are a mathematical reasoning evaluator. Your task is to analyze mathematical problem-solving steps and provide structured assessments in JSON format.

For each solution step, you need to evaluate two aspects:
1. Validity Score (-1 to +1):
   * +1: Completely correct mathematical reasoning
   * 0: Partially correct with some mistakes
   * -1: Completely incorrect
   * Use any value in between to indicate varying degrees of correctness

2. Redundancy Score (-1 to +1):
   * -1: Critical step, absolutely necessary for the solution
   * 0: Moderately important step
   * +1: Completely redundant, can be omitted
   * Use any value in between to indicate varying degrees of redundancy

Requirements:
- Evaluate each step independently
- Provide scores as floating-point numbers
- Return results in strict JSON format: {"validity": [scores], "redundancy": [scores]}
- Ensure both arrays have the same length as the number of steps
- Maintain mathematical rigor in your evaluation
- Consider mathematical accuracy, logical coherence, and solution efficiency

Example output format:
{"validity": [0.8, -0.5, 1.0], "redundancy": [-1.0, 0.3, 0.7]}

You will be presented with a mathematical problem and its step-by-step solution. Please analyze each step and provide your evaluation in the specified JSON format.

"""

PRMBENCH_QUESTION_1 = """
Question:

In 1992, a scoop of gelato could be purchased in Italy for 1200 lire. The same gelato would have cost $\\$1.50$ in the U.S. At the equivalent exchange rate between the lire and the dollar, how many dollars would be equivalent to 1,000,000 lire?

Solution:

Step 1. Let's call the number of dollars x. So, the problem is asking us to solve the equation x=1000000*$\\frac{1.50}{1200}$.

Step 2. There are two ways to solve this equation. We could either divide 1000000 by 1200 and then multiply the result by 1.50 or we could divide 1.50 by 1200 and then multiply the result by 1000000.

Step 3. I think the second way will be easier. $\\frac{1.50}{1200}=0.00125$.

Step 4. That's true. Now we just have to solve the equation x=1000000*0.00125.

Step 5. So x=$1250$.

Step 6. So x=$1250$.

Step 7. That's the final answer.

Step 8. Right. So 1,000,000 lire is equivalent to $\\$1250$.

# Answer

1250
"""

PRMBENCH_ANSWER_1 = (
    '{"validity": [1.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],"redundancy": [-1.0, 0.5, -0.5, -0.5, -1.0, 1.0, 0.5, 1.0]}'
)

PRMBENCH_QUESTION_2 = """
Question:

Four points, $A$, $B$, $C$, and $D$, are chosen randomly and independently on the circumference of a circle. What is the probability that segments $AB$ and $CD$ intersect?

Solution:

Step 1. Let's think about what it means for the segments to intersect.

Step 2. Whether they intersect is entirely a function of the order of $B,C,D$ on the circle, when we look at it counterclockwise and consider $A$ to come first.

Step 3. Exactly. So let's consider the different possible orders of $B,C,D$.

Step 4. The number of possible orders is $3!=6$.

Step 5. Yes, that's right. Now, we need to figure out how many of these result in the segments intersecting.

Step 6. If $C$ is in between $B$ and $D$, then the segments will intersect.

Step 7. If $B$ is in between $C$ and $D$, then the segments will intersect.

Step 8. Right. That's two of the possible orders.

Step 9. So, the probability that the segments intersect is $\\dfrac{2}{6}=\\dfrac{1}{3}$.

Step 10. And that's our answer.

# Answer

1/3
"""

PRMBENCH_ANSWER_2 = '{"validity": [1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 0.8, 1.0, 1.0, 1.0],"redundancy": [-1.0, -0.5, -0.5, -0.5, -0.5, -0.5, 0.5, -0.5, -1.0, 1.0]}'

DIGESTS = {
    "CRITIQUE_PROMPT": "0e7dba24bfaa9dea",
    "PRMBENCH_PROMPT": "cc6837a15a17d9cc",
    "PRMBENCH_QUESTION_1": "b7981c82285f65a8",
    "PRMBENCH_ANSWER_1": "3330bb1ba8b6c1b2",
    "PRMBENCH_QUESTION_2": "90726ced18bf8be5",
    "PRMBENCH_ANSWER_2": "a1d53cabba367d0a",
}
"""First 16 hexadecimal digits of the sha256 of each published constant (UTF-8)."""

_TAG = re.compile(r"</?paragraph_\d+>")
_NUMBERED = re.compile(r"^(Step\s*\d+\.\s*|\d+\.\s*)", re.IGNORECASE)


def critique_prompt(problem: str, steps: Sequence[str], specials: Collection[str] = ()) -> str:
    """ProcessBench's user turn: paragraphs in tags counted from 0 (``run_eval.py``, ``prepare_input_boxed``)."""
    clean = [neutralise(step, {*specials, *_TAG.findall(step)}) for step in steps]
    tagged = "".join(f"<paragraph_{at}>\n{step}\n</paragraph_{at}>\n\n" for at, step in enumerate(clean)).strip()
    clear = neutralise(problem, {*specials, *_TAG.findall(problem)})
    return CRITIQUE_PROMPT.format(problem=clear, tagged_response=tagged)


def prmbench_prompt(problem: str, steps: Sequence[str], specials: Collection[str] = ()) -> str:
    """PRMBench's last user turn: steps counted from 1, their own numbers taken off (``openai_models.py``)."""
    clean = [_NUMBERED.sub("", neutralise(step, specials).strip()) for step in steps]
    said = "".join(f"Step {number}: {step} \n\n" for number, step in enumerate(clean, start=1))
    return f"Question: {neutralise(problem, specials)}\n\n Solutions: {said}"


def prmbench_turns(first: Literal["system", "user"]) -> tuple[Turn, ...]:
    """The turns before it: instructions, said by ``first``, and two solved examples."""
    return (
        (first, PRMBENCH_PROMPT),
        ("user", PRMBENCH_QUESTION_1),
        ("assistant", PRMBENCH_ANSWER_1),
        ("user", PRMBENCH_QUESTION_2),
        ("assistant", PRMBENCH_ANSWER_2),
    )
