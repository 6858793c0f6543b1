"""The published prompts of LLM judges on ProcessBench and PRMBench, verbatim and pinned by digest.

Sources: ``CRITIQUE_PROMPT`` is QwenLM/ProcessBench at e802463, ``code/templates/critique_template.txt`` (quoted in the
paper's appendix; the dataset's licence is Apache-2.0). The rest are from ssmisya/PRMBench at a1ae4ea,
``mr_eval/utils/prompts.py`` (Apache-2.0), with two solved examples, and ``mr_eval/models/openai_models.py``.

A word joiner breaks up special tokens in untrusted text, and paragraph tags inside a paragraph. The rest of the text is
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from pathfinder.core.prompts import unnumbered
from pathfinder.engines.sampling import Turns
from pathfinder.models.tokens import neutralise

DIGESTS = {
    "CRITIQUE_PROMPT": "0e7dba24bfaa9dea",
    "PRMBENCH_PROMPT": "cc6837a15a17d9cc",
    "PRMBENCH_QUESTION_1": "b7981c82285f65a8",
    "PRMBENCH_ANSWER_1": "3330bb1ba8b6c1b2",
    "PRMBENCH_QUESTION_2": "90726ced18bf8be5",
    "PRMBENCH_ANSWER_2": "a1d53cabba367d0a",
}
"""First 16 hexadecimal digits of the sha256 of each file in ``published/`` (lower-case names, UTF-8)."""
PUBLISHED = {
    name: (Path(__file__).parent / "published" / f"{name.lower()}.txt").read_text(encoding="utf-8") for name in DIGESTS
}

_TAG = re.compile(r"</?paragraph_\d+>")


def critique_prompt(problem: str, steps: Sequence[str], specials: Collection[str] = ()) -> str:
    """ProcessBench's user turn, with paragraphs in tags numbered from 0 (``run_eval.py``, ``prepare_input_boxed``)."""
    clean_problem, *clean = (neutralise(text, {*specials, *_TAG.findall(text)}) for text in (problem, *steps))
    tagged = "".join(f"<paragraph_{at}>\n{step}\n</paragraph_{at}>\n\n" for at, step in enumerate(clean)).strip()
    return PUBLISHED["CRITIQUE_PROMPT"].format(problem=clean_problem, tagged_response=tagged)


def prmbench_prompt(problem: str, steps: Sequence[str], specials: Collection[str] = ()) -> str:
    """PRMBench's last user turn; numbers from 1 replace the steps' own numbers (``openai_models.py``)."""
    clean = [unnumbered(neutralise(step, specials)) for step in steps]
    numbered = "".join(f"Step {number}: {step} \n\n" for number, step in enumerate(clean, start=1))
    return f"Question: {neutralise(problem, specials)}\n\n Solutions: {numbered}"


def prmbench_turns(first: Literal["system", "user"]) -> Turns:
    """PRMBench's earlier turns: the instructions, in the role ``first``, and two solved examples."""
    return (
        (first, PUBLISHED["PRMBENCH_PROMPT"]),
        ("user", PUBLISHED["PRMBENCH_QUESTION_1"]),
        ("assistant", PUBLISHED["PRMBENCH_ANSWER_1"]),
        ("user", PUBLISHED["PRMBENCH_QUESTION_2"]),
        ("assistant", PUBLISHED["PRMBENCH_ANSWER_2"]),
    )
