"""The choice among answers here and in search-and-learn. There, an empty answer has a vote; here, none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pathfinder.benchmarks.grading import Grader, last_boxed, majority
from pathfinder.policy.choosing import SCORES, choose
from tests.published.kept import cases, differences


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as grader:
        yield grader


def voted(grader: Grader, given: dict[str, Any]) -> list[str | None]:
    return grader.votes([last_boxed(f"\\boxed{{{answer}}}") for answer in given["answers"]])


@pytest.mark.parametrize(
    ("function", "rule"), [("compute_naive_pred", "last"), ("find_answer_with_largest_sum", "weighted_last")]
)
def test_the_score_and_the_weighted_vote_choose_the_published_answer(function: str, rule: str, grader: Grader) -> None:
    def chosen(given: dict[str, Any]) -> str | None:
        place = choose([[score] for score in given["scores"]], voted(grader, given))[rule]
        return None if place is None else str(given["answers"][place])

    assert not differences(cases("choices", function), chosen)


def test_the_vote_chooses_the_published_answer(grader: Grader) -> None:
    assert not differences(cases("choices", "find_majority_answer"), lambda given: majority(voted(grader, given)))


def test_the_scores_of_steps_are_the_published_ones() -> None:
    def scores(steps: list[float]) -> dict[str, float]:
        return {theirs: SCORES[ours](steps) for theirs, ours in (("min", "min"), ("prod", "product"), ("last", "last"))}

    assert not differences(cases("choices", "aggregate_scores"), scores)
