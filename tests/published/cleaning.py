"""The part of a Mistral conversation that training reads, from ``load_data_mistral.py`` to ``build_dataset.py``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.published.prompts import BUILD
from tests.published.sources import Source

FOLDER = "src/data_generation"
BUILD_PARTS = ("GOOD_TOKEN", "BAD_TOKEN", "SEPARATOR_TOKEN", "SYSTEM_PROMPT", "build_data_sample", "build_conversation")
SCORES = {1: (1, 1, 1), 0: (1, 0, 1)}
"""The judge's scores of a step by its rating: such steps stay in the training set."""
QUESTION = "How many?"
FIRST = ("Step 1: add", "Step 1:", "Step 1: \n\n", "add", "Step 1: Step 1: add\nStep 2: go", " \n Step 1: add \n")
LATER = (
    (),
    ("Step 2: go",),
    ("", "Step 3: stop"),
    ("Step 2: go", "", "", "Step 5: stop"),
    (" \n\t\n ", "Step 3: stop"),
    ("Step 2: ", "Step 3: stop"),
    ("Step 2:", "", "Step 4:\nmore"),
    ("a\n\nb\n", "\n\nc", "", "d"),
    ("", "", ""),
    ("see Step 4: there", "\u00a0\u2028", "x = 1\r\n\r\ny"),
    ("step 2: go", "Step 3 : stop", "Step  4:stop"),
)


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """The samples of conversations with every first step of ``FIRST`` and all later steps of ``LATER``."""
    source = sources["declare-lab/PathFinder-PRM"]
    load = source.parts(f"{FOLDER}/load_data_mistral.py", ["process_mistral_dataset"], json=json, re=re, Path=Path)
    clean = source.parts(f"{FOLDER}/clean_mistral.py", ["clean_prev_and_curr_steps"], re=re)
    build = source.parts(BUILD, BUILD_PARTS)

    def run(turns: list[dict[str, str]]) -> list[Any]:
        records = load.process_mistral_dataset([turns])
        for each in records:
            scores = SCORES.get(each["mistral_score"], (-1, -1, -1))
            each.update(zip(("score_A", "score_B", "score_C"), scores, strict=True))
        made = [build.build_data_sample(each) for each in clean.clean_prev_and_curr_steps(records)]
        return [[[sample[form][1]["content"] for form in ("inputs", "labels")] for sample in pair] for pair in made]

    return [
        source.recorded(f"{FOLDER}/clean_mistral.py", "clean_prev_and_curr_steps", run, map(_turns, _conversations()))
    ]


def _conversations() -> list[tuple[str, ...]]:
    return [(f"{QUESTION} {first}", *later) for first in FIRST for later in LATER]


def _turns(steps: tuple[str, ...]) -> list[dict[str, str]]:
    rated = (({"role": "user", "content": step}, place) for place, step in enumerate(steps))
    return [turn for user, place in rated for turn in (user, {"role": "assistant", "content": "+-"[place % 3 == 1]})]
