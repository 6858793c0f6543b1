"""The oracle's verdict on a step of an ordinary trajectory."""

from __future__ import annotations

from tests.stages.test_truth import CARRIED, FIRST, STORY
from world.truth import verdict_of


def test_a_step_is_judged_given_the_steps_before_it() -> None:
    verdict = verdict_of(STORY, [FIRST], CARRIED)
    assert verdict is not None
    assert verdict.labels[:2] == (1, 0)
    after_error = verdict_of(STORY, ["1) buys 9, so 4 + 9 = 12 books."], CARRIED)
    assert after_error is not None
    assert after_error.is_correct, "a step that continues from an incorrect value is correct"
