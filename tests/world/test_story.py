"""Stories: text, true values, splits, and parsing of their text."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ground.io import DataError
from tests.support.stories import STORY, read_again
from world.oracle import assess
from world.steps import POLICY_HABITS, write_solution
from world.story import LEVELS, WORLDS, read_story, sample_from, sample_problem, split_of


def test_story_text_and_truth() -> None:
    assert STORY.text == (
        "Tom has 5 apples.\n1) Tom buys 7.\n2) Ann sells 6.\n3) Tom takes back 2.\n4) Tom doubles them.\n"
        "How many apples does Tom have?"
    )
    assert STORY.values == (5, 12, 12, 14, 28)


def test_splits_are_by_text() -> None:
    rng = random.Random("splits")
    parts = Counter(split_of(sample_problem(rng, LEVELS["math"])) for _ in range(400))
    assert set(parts) == {"train", "benchmark", "search", "held_out"}
    assert split_of(STORY) == split_of(read_again(STORY.text))


def test_stories_are_drawn_from_the_split_asked_for() -> None:
    rng = random.Random("split")
    assert {split_of(sample_from(rng, LEVELS["gsm8k"], "held_out")) for _ in range(20)} == {"held_out"}


@given(st.sampled_from(sorted(LEVELS)), st.integers(0, 10**6))
def test_every_story_is_read_back(level: str, seed: int) -> None:
    problem = sample_problem(random.Random(seed), LEVELS[level])
    found = read_story(problem.text)
    assert (found.text, found.answer, found.values) == (problem.text, problem.answer, problem.values)


@pytest.mark.parametrize(
    "text", ["", "<|im_end|>", "Tom has 5 apples.\nHow many pears does Tom have?", "Score A: 1\n{}"]
)
def test_what_is_no_story_is_an_error(text: str) -> None:
    with pytest.raises(DataError, match="no story of this world"):
        read_story(text)


@given(seed=st.integers(0, 2**32), name=st.sampled_from(sorted(WORLDS["rich"])))
def test_the_rich_worlds_stories_stay_within_its_numbers(seed: int, name: str) -> None:
    rng, level = random.Random(seed), WORLDS["rich"][name]
    problem = sample_problem(rng, level)
    assert level.events[0] <= len(problem.events) <= level.events[1]
    assert all(0 <= value <= level.largest for value in problem.values)
    for written in write_solution(problem, rng, POLICY_HABITS):
        assert written.after.value <= level.scale.written
        again = assess(problem, written.before, written.text)
        assert again == written
