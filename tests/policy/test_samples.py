"""Whole solutions: drawn by key, graded, and counted by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pathfinder.benchmarks.grading import Grader, GradingPreset
from pathfinder.benchmarks.readers import SearchProblem
from pathfinder.engines.sampling import Completion, Sampling
from pathfinder.policy.samples import figures, grade_all, solve
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
    problems = [problem("0"), problem("1", "another")]
    drawn = solve(policy, problems, chosen)
    assert len(policy.prompts) == 8
    assert [row["id"] for row in drawn] == ["0", "1"]
    assert drawn[0]["answers"] == ["7", "6", "7", None]
    rows, _ = grade_all(problems, drawn, "repaired")
    assert rows[0]["right"] == [True, False, True, False]
    assert (rows[0]["majority"], rows[0]["majority_right"]) == ("7", True)
    assert figures(rows, 4) == {"pass@1": [0.5, 0.5], "maj@4": [1.0, 1.0], "pass@4": pytest.approx([1.0, 1.0])}


@pytest.mark.parametrize(("preset", "right"), [("repaired", True), ("official", False)])
def test_whole_solutions_are_graded_as_the_searches(preset: GradingPreset, right: bool) -> None:
    """Otherwise a search under the published grading would be compared with the policy's answers under another one."""
    listed = SearchProblem("olympiadbench", "0", "What is n + n?", ["$2 n$"])
    (row,), _ = grade_all([listed], [{"answers": ["2 n", None, "2 n"]}], preset)
    assert (row["right"], row["majority_right"]) == ([right, False, right], right)
    assert row["majority"] == "2 n"


def test_a_failed_comparison_of_two_answers_is_no_failure_of_grading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grader, "_compare", lambda *_: (False, "timeout"))
    (row,), failures = grade_all([problem()], [{"answers": ["x", "y", "x"]}], "repaired")
    assert (row["votes"], failures) == (["x", "y", "x"], {"timeout": 2})
