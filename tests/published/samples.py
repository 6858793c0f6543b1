"""The training samples as tokens: ``build_dataset.py``, then ``prepare_train_dataset.py``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pathfinder.models.tokens import add_label_tokens
from tests.published.cleaning import BUILD_PARTS
from tests.published.prompts import BUILD
from tests.published.sources import Source
from tests.support.models import plain_tokenizer

PREPARE = "src/training/prepare_train_dataset.py"
LABELS = ((1, 1, 1), (0, 1, 0), (1, 1, 0), (1, 0, 0))
POSITIONS = 32768


def tokenizer() -> Any:
    """The small tokenizer with the label tokens, which the published code and the project share."""
    made = plain_tokenizer()
    add_label_tokens(made)
    made.model_max_length = POSITIONS
    return made


def trees() -> list[dict[str, Any]]:
    """Trees of two to five steps (``records.TREES``). Each step is a record, and every third has an alternative."""
    rows = []
    for number in range(13):
        steps = [f"add {'x + ' * (number * place % 5)}{place}" for place in range(2 + number % 4)]
        branches: list[dict[str, Any]] = []
        for place, step in enumerate(steps):
            texts = (step, f"so {number}")[: 1 + (place % 3 == 2)]
            for text in texts:
                labels = LABELS[(number + len(branches)) % len(LABELS)]
                names = dict(zip(("math", "consistency", "correctness"), labels, strict=True))
                branches.append({"id": f"r-{number}-{len(branches)}", "step_index": place, "step": text, **names})
        origin = {"tree_id": f"t-{number}", "problem_id": f"p-{number}", "source": "prm800k"}
        rows.append({**origin, "problem": f"What is {number}?", "steps": steps, "branches": branches})
    return rows


def scored() -> Iterator[dict[str, Any]]:
    """The records of ``trees`` as the published labelling writes them."""
    for tree in trees():
        for branch in tree["branches"]:
            optimal = branch["correctness"] or int(not (branch["math"] and branch["consistency"]))
            yield {
                "question": tree["problem"],
                "prev_steps": "\n\n".join(tree["steps"][: branch["step_index"]]),
                "curr_step": branch["step"],
                "score_A": branch["math"],
                "score_B": branch["consistency"],
                "score_C": optimal,
            }


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """Ids of the two samples of each record, and the labels by their places."""
    source = sources["declare-lab/PathFinder-PRM"]
    build = source.parts(BUILD, BUILD_PARTS, json=json)
    prepare = source.parts(PREPARE, ["batch_preprocess"], tokenizer=tokenizer())

    def run(given: dict[str, Any]) -> list[Any]:
        pair = build.build_data_sample(given)
        made = prepare.batch_preprocess({form: [sample[form] for sample in pair] for form in ("inputs", "labels")})
        wanted = [{place: label for place, label in enumerate(row) if label != -100} for row in made["labels"]]
        return [list(sample) for sample in zip(made["input_ids"], wanted, strict=True)]

    return [source.recorded(PREPARE, "batch_preprocess", run, scored())]
