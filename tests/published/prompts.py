"""What the PRM reads: the turns of ``build_dataset.py`` and of the three published runners."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from tests.published.sources import Source

REPOSITORY = "declare-lab/PathFinder-PRM"
BUILD = "src/data_generation/build_dataset.py"
PREFIXES = ([], [""], ["", ""], ["", "a"], ["a", ""], ["a"], ["a", "b\nc"], [" "], ["\n\n"], ["", "", "x = 1"])
STEPS = ("s", "", " ", "\n\n", "Current Step: s", "so <+> Math reasoning: <->", "x\u2028y\r\n")


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """The samples of ``build_dataset.py``."""
    return [_training(sources[REPOSITORY])]


def _training(source: Source) -> dict[str, Any]:
    names = ("GOOD_TOKEN", "BAD_TOKEN", "SEPARATOR_TOKEN", "SYSTEM_PROMPT", "build_data_sample", "build_conversation")
    script = source.parts(BUILD, names, json=json)
    scores = list(itertools.product((0, 1), repeat=3))
    inputs = [
        {
            "question": "How many?",
            "prev_steps": "\n\n".join(prefix),
            "curr_step": step,
            **dict(zip(("score_A", "score_B", "score_C"), scores[number % len(scores)], strict=True)),
        }
        for number, (prefix, step) in enumerate(itertools.product(PREFIXES, STEPS))
    ]
    slots = {"SYSTEM_TRAINING": script.SYSTEM_PROMPT}
    return source.recorded(BUILD, "build_data_sample", script.build_data_sample, inputs, slots)
