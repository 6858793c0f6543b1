"""How the published code cleans the texts of steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.published.sources import Source

CLEANING = "src/data_generation/clean_mistral.py"
KIT = "mr_eval/utils/model_utils.py"
STEPS = (
    "Step 1. add", "step 2.add", "STEP  12.  add", "3. add", "3.5 apples", "3) add", "Step 1: add", "Step 1 . add",
    " \n Step 1. add \n", "1. 2. add", "Step 1. Step 2. add", "Step. add", "step1.", "1.", "", " ", "٣. add",
    "-1. add", "Step\n4.\nadd", "Step 1\u00a0. add", "Step\u00a01. add", "add 1. more", "1 .", ".5 is", "1.000",
    "x\n1. y",
)  # fmt: skip


CAPTIONED = (
    *STEPS, "Step 2: b", "Step 2:b", "step 2: b", "see Step 9: later", "Step 1: a Step 2: b", "a\nStep 2: b\n\n\nc",
    " \n a \n\n b ", "Step 1:\nb", "Step 1: Step 2: b", "Step  12 : b", "Step\u00a03: b", "a\r\nStep 2: b\r\n",
    "Step ٣: c", "a\u2028Step 2: b", "Step 1:", "StepStep 1: 2: a", "\n\n", "a\fb", "Steps 1: x",
)  # fmt: skip


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """The step numbers that the PRMBench kit removes, and the captions that ``clean_mistral.py`` removes of a step."""
    kit, source = sources["ssmisya/PRMBench"], sources["declare-lab/PathFinder-PRM"]
    removed = kit.parts(KIT, ["remove_step_prefix"], re=re)
    script = source.parts(CLEANING, ["clean_prev_and_curr_steps"], re=re)

    def cleaned(text: str) -> Any:
        (item,) = script.clean_prev_and_curr_steps([{"curr_step": text}])
        return item["curr_step"]

    return [
        kit.recorded(KIT, "remove_step_prefix", removed.remove_step_prefix, STEPS),
        source.recorded(CLEANING, "clean_prev_and_curr_steps", cleaned, CAPTIONED),
    ]
