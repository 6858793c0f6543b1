"""The PRMBench kit's requests to a chat model, its reading of the answers, and what the ``official`` rules do here."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from pathfinder.benchmarks.evaluation import PRMBenchEvaluation
from pathfinder.benchmarks.readers import Loaded, PRMBenchItem
from pathfinder.judge.critic_prompts import prmbench_prompt, prmbench_turns
from pathfinder.judge.critics import Asked, Text, critic_named
from tests.published.kept import cases, differences


def test_the_request_is_the_kit_s() -> None:
    def asked(given: dict[str, Any]) -> dict[str, Any]:
        turns = prmbench_turns(critic_named(given["model"]).first)
        return {
            "roles": [*(role for role, _ in turns), "user"],
            "digests": [sha256(text.encode()).hexdigest()[:16] for _, text in turns],
            "last": prmbench_prompt(given["problem"], given["steps"]),
        }

    assert not differences(cases("kit_judges", "OpenaiModels.getitem_function"), asked)


@pytest.mark.parametrize("runner", ["OpenaiModels", "VllmModels"])
def test_answers_are_read_and_labelled_as_the_kit_does(runner: str) -> None:
    item = PRMBenchItem("circular_0", "circular", "How many?", tuple("abcd"), ())
    evaluation = PRMBenchEvaluation(Loaded([item], 1, {}, {}))

    def read(answer: str) -> dict[str, Any]:
        ((row, _),) = Asked(1, [[Text(answer, cut=False)]], {}).read(evaluation, "official")
        return {key: row[key] for key in ("validity", "scores") if key in row}

    found = cases("kit_judges", f"{runner}.respond")
    assert {case.output["validity"] for case in found} == {True, False}
    for case in found:  # the kit keeps an empty text where a list was asked for, which has no label either
        scores = case.output.get("scores", {})
        scores.update({name: list(values) for name, values in scores.items()})
    assert not differences(found, read)
