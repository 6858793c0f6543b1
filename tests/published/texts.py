"""How the published code cleans the texts of steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.published.sources import Source

KIT = "mr_eval/utils/model_utils.py"
STEPS = (
    "Step 1. add", "step 2.add", "STEP  12.  add", "3. add", "3.5 apples", "3) add", "Step 1: add", "Step 1 . add",
    " \n Step 1. add \n", "1. 2. add", "Step 1. Step 2. add", "Step. add", "step1.", "1.", "", " ", "٣. add", "-1. add",
    "Step\n4.\nadd", "Step 1\u00a0. add", "Step\u00a01. add", "add 1. more", "1 .", ".5 is", "1.000", "x\n1. y",
)  # fmt: skip


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """The step numbers that the PRMBench kit removes."""
    kit = sources["ssmisya/PRMBench"]
    removed = kit.parts(KIT, ["remove_step_prefix"], re=re)
    return [kit.recorded(KIT, "remove_step_prefix", removed.remove_step_prefix, STEPS)]
