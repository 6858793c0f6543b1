"""The choice among answers here and in search-and-learn. There, an empty answer has a vote; here, none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pathfinder.benchmarks.grading import Grader, majority
from pathfinder.policy.choosing import SCORES, choose
from tests.published.kept import Case, cases, differences


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as grader:
        yield grader


def problems(function: str, *, with_empty: bool = False) -> list[Case]:
    return [case for case in cases("choices", function) if ("" in case.input["answers"]) == with_empty]


@pytest.mark.parametrize(
    ("function", "rule"), [("compute_naive_pred", "last"), ("find_answer_with_largest_sum", "weighted_last")]
)
def test_the_score_and_the_weighted_vote_choose_the_published_answer(function: str, rule: str, grader: Grader) -> None:
    def chosen(given: dict[str, Any]) -> str | None:
        answers = [answer or None for answer in given["answers"]]
        votes = grader.votes(answers)
        place = choose([[score] for score in given["scores"]], votes)[rule]
        return None if place is None else answers[place]

    assert not differences(problems(function), chosen)
    found = problems(function, with_empty=True)
    assert found
    assert not differences([case for case in found if case.output], chosen), "an empty answer lost, there and here"
    assert all(chosen(case.input) != "" for case in found)


def test_the_vote_chooses_the_published_answer(grader: Grader) -> None:
    found = problems("find_majority_answer")
    assert not differences(found, lambda given: majority(grader.votes(given["answers"])))


def test_the_scores_of_steps_are_the_published_ones() -> None:
    def scores(steps: list[float]) -> dict[str, float]:
        return {theirs: SCORES[ours](steps) for theirs, ours in (("min", "min"), ("prod", "product"), ("last", "last"))}

    assert not differences(cases("choices", "aggregate_scores"), scores)
