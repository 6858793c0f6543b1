"""The judge's lessons: the reasoning recomputes the step, and the answer parses."""

from __future__ import annotations

from pathfinder.core.labels import Scores
from pathfinder.judge.parsing import parse_scores
from tests.support.stories import STORY
from world.judge_lessons import judge_answer
from world.oracle import assess, begin


def test_judge_answer_recomputes_and_scores() -> None:
    step = "1) buys 7, so 5 + 7 = 13 apples."
    verdict = assess(STORY, begin(STORY), step)
    assert verdict is not None
    answer = "".join(text for text, _ in judge_answer(STORY, verdict))
    assert "5 + 7 = 12 no." in answer
    scores = parse_scores(answer.removesuffix("<|im_end|>"))
    assert scores == Scores(0, 1, 1)
