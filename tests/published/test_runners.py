from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ground.io import DataError
from pathfinder.benchmarks.processbench import first_error
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.steps import Solution, StepScore, by_reading
from pathfinder.prm.evaluate import verdicts
from pathfinder.prm.steps import queries_of, refuse_other_tokens, step_score
from pathfinder.tree.passes import PRESETS, Mode, Place, Prompter
from tests.published.kept import cases, differences
from tests.published.test_prompts import turns
from tests.support.models import plain_tokenizer

LEAST = 1e-30


@pytest.fixture(scope="module")
def prompters() -> dict[str, Prompter]:
    return {name: Prompter(plain_tokenizer(), VARIANTS["full"], preset) for name, preset in PRESETS.items()}


def logs(shares: Sequence[float]) -> tuple[float, float, float]:
    """The log-probabilities of ``<+>``, ``<->`` and the likeliest token."""
    good, bad, _ = (math.log(max(share, LEAST)) for share in shares)
    return good, bad, math.log(max(shares))


def read(prompter: Prompter, said: Sequence[Sequence[Sequence[float]]]) -> list[StepScore]:
    found = {
        Place(number, (), mark): logs(shares) for number, step in enumerate(said) for mark, shares in enumerate(step)
    }
    return [step_score(prompter, number, found, Mode.FIRST) for number in range(len(said))]


def messages(prompter: Prompter, given: Mapping[str, Any], solution: Solution) -> list[list[dict[str, str]]]:
    asked = [turns(prompter, query.problem, list(query.prefix), query.step) for query in queries_of(solution)]
    role = prompter.preset.answer_role
    return [[{"role": "user", "content": user}, {"role": role, "content": answer}] for user, answer in asked]


def test_processbench_is_asked_and_read_as_published(prompters: dict[str, Prompter]) -> None:
    prompter = prompters["official-processbench"]

    def run(given: dict[str, Any]) -> Any:
        solution = Solution("s", given["problem"], tuple(given["steps"]))
        scores = read(prompter, given["said"])
        try:
            refuse_other_tokens(prompter, [solution], [scores])
        except DataError:
            return {"raises": "ValueError"}
        prediction = first_error(by_reading(scores, "soundness").correct)
        asked = messages(prompter, given, solution)[: prediction + 1 or None]  # the published runner stops there
        return {"turns": asked, "prediction": prediction, "match": prediction == given["label"]}

    assert not differences(cases("runners", "main"), run)


def test_prmbench_is_asked_and_read_as_published(prompters: dict[str, Prompter]) -> None:
    prompter = prompters["official-prmbench"]

    def run(given: dict[str, Any]) -> Any:
        solution = Solution("s", given["problem"], tuple(given["steps"]))
        scores = read(prompter, given["said"])
        results = {
            "step_level_validity_scores": [sum(step.first.values()) / 2 for step in scores],
            "step_level_validity_labels": verdicts([scores], "official")[0].correct,
        }
        line = {"task_name": "prmtest_classified", "model_name": "disc_PRM"}
        line_of_kit = line | {"results": {"idx": "circular_0", "scores": results}}
        return {"turns": messages(prompter, given, solution), "lines": [line_of_kit]}

    assert not differences(cases("runners", "MyDiscriminativePRM"), run)


def test_the_search_rejects_and_rewards_as_published(prompters: dict[str, Prompter]) -> None:
    prompter = prompters["official-search"]

    def run(given: dict[str, Any]) -> float:
        found = {Place(0, (), mark): logs(shares) for mark, shares in enumerate(given["first"])}
        rewards = {
            Place(0, (first, second), 2): logs(given["second"]) for first in (True, False) for second in (True, False)
        }
        step = step_score(prompter, 0, found | rewards)
        return -1.0 if step.has_error else step.reward

    assert not differences(cases("runners", "PathFinderPRM.inference_single"), run)
