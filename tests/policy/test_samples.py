"""Whole solutions: drawn by key, graded, and counted by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pathfinder.benchmarks.grading import Grader
from pathfinder.engines.sampling import Completion, Sampling
from pathfinder.policy.samples import figures, graded, solve
from tests.support.searches import Script, problem, settings


class Whole(Script):
    """Every second solution is correct, and the last of a problem has no answer."""

    def __init__(self) -> None:
        super().__init__(lambda name, number, draw: ("", ""))

    def generate(self, prompts: Sequence[str], keys: Sequence[str], sampling: Sampling) -> list[Completion]:
        self.prompts += prompts
        draws = [int(key.rpartition("/")[2]) for key in keys]
        texts = ["no answer" if draw == 3 else f"so \\boxed{{{7 - draw % 2}}}" for draw in draws]
        return [Completion(text, 1, "stop") for text in texts]


def test_rows_and_figures() -> None:
    policy, chosen = Whole(), settings()
    drawn = solve(policy, [problem("0"), problem("1", "another")], chosen)
    assert len(policy.prompts) == 8
    assert [row["id"] for row in drawn] == ["0", "1"]
    assert drawn[0]["answers"] == ["7", "6", "7", None]
    with Grader() as grader:
        rows = [graded(grader, problem(row["id"], row["question"]), row) for row in drawn]
    assert rows[0]["right"] == [True, False, True, False]
    assert (rows[0]["majority"], rows[0]["majority_right"]) == ("7", True)
    assert figures(rows, 4) == {"pass@1": [0.5, 0.5], "maj@4": [1.0, 1.0], "pass@4": pytest.approx([1.0, 1.0])}
