"""Record ids and problem ids: stable, and equal only for equal things."""

from __future__ import annotations

import pytest

from ground.text import normalise
from pathfinder.core.records import problem_id, record_id, trajectory_id


def test_ids_name_the_origin_of_a_record() -> None:
    trajectory = trajectory_id("prm800k", "52a84ede" + "0" * 56, 10)
    assert trajectory == "prm800k-52a84ede-10"
    assert record_id(trajectory, 1, 2) == "prm800k-52a84ede-10-1-2"


@pytest.mark.parametrize("same", ["What  is\n1 + 1?", "what is 1 + 1?", " What is 1 + 1? ", "What is １ + 1?"])
def test_case_space_and_width_do_not_change_a_problem(same: str) -> None:
    assert problem_id(same) == problem_id("What is 1 + 1?")


@pytest.mark.parametrize("other", ["What is 1 + 2?", "What is 1 - 1?", "What is 1 + 1", ""])
def test_other_text_is_another_problem(other: str) -> None:
    assert problem_id(other) != problem_id("What is 1 + 1?")


def test_normalised_text_is_a_fixed_point() -> None:
    text = normalise("ﬁve  Ⅷ\tX²")
    assert normalise(text) == text == "five viii x2"
