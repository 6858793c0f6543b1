"""The measured abilities of a policy and a judge whose answers are known."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from pathfinder.engines.generate import Generator
from pathfinder.engines.sampling import Sampling
from tests.support.stories import read_again
from world.abilities import measure_judge, measure_policy
from world.steps import Habits, write_solution
from world.story import LEVELS


class Known:
    """Solves every story, misreading it if it samples; flags every second step."""

    def chat_prompt(self, text: str) -> str:
        return text

    def generate(self, asked: Sequence[str], keys: Sequence[str], sampling: Sampling) -> list[SimpleNamespace]:
        if keys[0].startswith("judge"):
            scores = [(i % 2, 1, 1) for i in range(len(asked))]
            return [SimpleNamespace(text="Score A: {}\nScore B: {}\nScore C: {}".format(*each)) for each in scores]
        texts = []
        for prompt in asked:
            found = re.search(r"\w+ has \d+ \w+\.\n(?:\d\) [^\n]+\n)+How many \w+ does \w+ have\?", prompt)
            assert found
            habits = Habits(misread=float(sampling.temperature > 0), flourish=0.0)
            steps = write_solution(read_again(found[0]), random.Random(0), habits)
            texts.append(SimpleNamespace(text="\n\n".join(step.text for step in steps)))
        return texts


KNOWN = cast(Generator, Known())


def test_a_policy_that_misreads_only_if_it_samples() -> None:
    found = measure_policy(KNOWN, 40, LEVELS)
    assert found["greedy_step_accuracy"] == found["greedy_answer_accuracy"] == 1.0
    assert set(found["first_faults_at_temperature"]) == {"none", "misreading"}
    rates = found["by_level"]["all"]
    assert 0 < rates["pass@1"] < 1
    assert rates["pass@1"] == rates["maj@8"] == rates["pass@8"] == rates["mean"], "all samples are equal"
    assert set(found["by_level"]) == {"all", *LEVELS}


def test_a_judge_that_flags_every_second_step() -> None:
    found = measure_judge(KNOWN, 200, LEVELS)
    assert (found["cases"], found["parsed"]) == (200, 1.0)
    assert 0.4 < found["error_recall"] < 0.6
    assert abs(found["error_precision"] - found["wrong"]) < 0.1, "flags at random are as precise as the base rate"
    low, high = found["intervals"]["error_recall"]
    assert low < found["error_recall"] < high
    assert sum(count for _, count in found["called_wrong_by_fault"].values()) >= 200
