"""The prompts of the method, word for word, pinned by digest.

Every text sent to a model is written here: the judge's grading prompt, the policy's prompt and the PRM's two-pass
prompt, each in the wording of its published script. ``DIGESTS`` pins the constants; a test compares them.

Source: paper sections 3.2-3.4 and appendix "Data Annotation Prompt"; declare-lab/PathFinder-PRM at 2f80ed4
(``src/data_generation/prompt.py``, ``build_dataset.py``, ``src/evaluation/**``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathfinder.core.labels import CORRECTNESS, OPTIMALITY, PREDICTED

GOOD = "<+>"
BAD = "<->"
MASK = "<extra>"
LABEL_TOKENS: tuple[str, str, str] = (GOOD, BAD, MASK)
"""The tokens that the method adds to the vocabulary, in the order of their ids."""

STEP_SEPARATOR = "\n\n"
END_OF_TURN = "<|im_end|>"
_CAPTION = re.compile(r"Step\s*\d+:\s*")
_STEP_NUMBER = re.compile(r"^(Step\s*\d+\.\s*|\d+\.\s*)", re.IGNORECASE)

_PUBLISHED = Path(__file__).parent / "published"
JUDGE_PROMPT = (_PUBLISHED / "judge_prompt.txt").read_text(encoding="utf-8")
SYSTEM_TRAINING = (
    "You are a Math Teacher. Given a question and a student's solution, evaluate the mathematical correctness, "
    "logic consistency of the current step and whether it will lead to the correct final solution"
)
SYSTEM_PRMBENCH = (
    "You are a Math Teacher. Given a question and a student's solution, evaluate the mathematical correctness "
    "and logic consistency of the current step."
)
SYSTEM_SEARCH = SYSTEM_TRAINING.replace("mathematical", "mathemetical")  # the published script's spelling

POLICY_PROMPT = (_PUBLISHED / "policy_prompt.txt").read_text(encoding="utf-8")

DIGESTS = {
    "JUDGE_PROMPT": "d3819ddb62ec12ca",
    "SYSTEM_TRAINING": "191c9a2f48a8e4bd",
    "SYSTEM_PRMBENCH": "6a68281090275995",
    "SYSTEM_SEARCH": "3ba238b1a1d03a26",
    "POLICY_PROMPT": "c96a8b66fe08e7a4",
}
"""The ``text_digest`` of each published constant."""


PUBLISHED_INDENTS = (16, 20)
"""Spaces before each line of the published judge context: PRM800K, then the Monte-Carlo sources.

Source: ``load_data.py``, ``load_data_mistral.py``.
"""


def judge_context(problem: str, prefix: Sequence[str], step: str, indent: int = 0) -> str:
    """The ``{context}`` of the judge prompt: problem, partial solution, current step.

    ``indent`` is the number of spaces before each line of the frame: 0 (repaired) or one of ``PUBLISHED_INDENTS``.
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

    The published script replaces the word "left-brackets" in the problem, too; this function only does so in the
    template.
    """
    template = POLICY_PROMPT.replace("left-brackets", "{{").replace("right-brackets", "}}")
    done = STEP_SEPARATOR.join(steps) + STEP_SEPARATOR if steps else ""
    return template.format(question=problem, previous_steps=done)


@dataclass(frozen=True, slots=True)
class Mark:
    """One label slot of a PRM prompt: the caption before it, and the label."""

    caption: str
    label: str


@dataclass(frozen=True, slots=True)
class Variant:
    """The labels that a PRM predicts: ``first`` independently of one another, then ``second`` given the first.

    ``title`` is its name in the report. With ``sequential``, every label sees the labels before it in one pass (the
    autoregressive alternative of the paper's appendix "Design Choice"). The reward of a variant without Correctness is
    the product of its labels.
    """

    name: str
    title: str
    first: tuple[Mark, ...]
    second: tuple[Mark, ...]
    sequential: bool = False


ERROR_FREE = "error_free"
_TYPES = {kind.name: Mark(kind.caption, kind.name) for kind in PREDICTED}
_MATH, _CONSISTENCY = _TYPES["math"], _TYPES["consistency"]
_ERROR_FREE = Mark("Error check", ERROR_FREE)
_CORRECTNESS = Mark("Correctness", CORRECTNESS)
_OPTIMALITY = Mark("Optimality", OPTIMALITY)

VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in (
        Variant("full", "PathFinder-PRM", (_MATH, _CONSISTENCY), (_CORRECTNESS,)),
        Variant("no_error_categories", "without separate error categories", (_ERROR_FREE,), (_CORRECTNESS,)),
        Variant("no_subtasks", "without separate subtasks", (_CORRECTNESS,), ()),
        Variant("plain_error", "with one label of errors", (_ERROR_FREE,), ()),
        Variant("typed_three", "with three labels in one pass", (_MATH, _CONSISTENCY, _OPTIMALITY), ()),
        Variant(
            "autoregressive", "with autoregressive labels", (_MATH, _CONSISTENCY), (_CORRECTNESS,), sequential=True
        ),
    )
}
"""The paper's model and its ablations (section 5.2; ``build_dataset_ablation.py`` for ``no_subtasks``; the wording of
``no_error_categories`` is ours, because the published code does not contain it).

``plain_error`` and ``typed_three`` are controls of ours. The first asks only for errors, ``no_subtasks`` for errors and
optimality in one label. The second asks for the three criteria of the judge in one pass.
"""

FIRST_LABELS = tuple(
    dict.fromkeys(mark.label for v in VARIANTS.values() for mark in v.first if mark not in (_CORRECTNESS, _OPTIMALITY))
)
"""Every error label of any variant, in the order of the keys in prediction files."""


def unnumbered(step: str) -> str:
    """A step without ``Step 3. `` or ``3. `` (PRMBench's ``remove_step_prefix``)."""
    return _STEP_NUMBER.sub("", step.strip())


def without_captions(text: str) -> str:
    """A Monte-Carlo step without any "Step N:", with every line as a paragraph (``clean_mistral.py``)."""
    lines = [_CAPTION.sub("", line).strip() for line in text.strip().split("\n") if line.strip()]
    return STEP_SEPARATOR.join(lines)


def user_turn(problem: str, system: str = SYSTEM_TRAINING) -> str:
    """The PRM's user turn; the space before "Question" is as published (``build_dataset.py``)."""
    return f"{system}{STEP_SEPARATOR} Question: {problem}"


def assistant_turn(
    prefix: Sequence[str],
    step: str,
    marks: Sequence[tuple[str, str]],
    lead: str = "Current Step: ",
    counts_steps: bool = False,
) -> str:
    """The PRM's assistant turn up to and including its marks.

    ``marks`` are ``(caption, token)`` pairs, e.g. ``("Math reasoning", "<extra>")``. ``lead`` is "Current step: " in
    the published PRMBench runner. A prefix of one empty step is followed by a blank line only with ``counts_steps``:
    ``build_dataset.py`` and the PRMBench runner look at the joined text, the other two runners at the list.
    """
    joined = STEP_SEPARATOR.join(prefix)
    before = joined + STEP_SEPARATOR if joined or (counts_steps and prefix) else ""
    return f"{before}{lead}{step} " + ", ".join(f"{caption}: {token}" for caption, token in marks)
