"""The oracle's labels of single steps."""

from __future__ import annotations

import random

import pytest

from tests.support.stories import STORY
from world.oracle import assess, assess_all, begin
from world.steps import Habits, write_solution


@pytest.mark.parametrize(
    ("done", "step", "labels", "faults"),
    [
        (0, "1) buys 7, so 5 + 7 = 12 apples.", (1, 1, 1), ()),
        (0, "1) buys 7, so clearly 5 + 7 = 13 apples.", (0, 1, 1), ("arithmetic",)),
        (0, "1) buys 7, so 5 - 7 = 2 apples.", (0, 1, 1), ("operation", "arithmetic")),
        (0, "1) buys 7, hence 5 + 6 = 11 apples.", (0, 1, 1), ("operand",)),
        (0, "1) buys 6, so 5 + 6 = 11 apples.", (1, 0, 1), ("amount",)),
        (0, "1) sells 4, so 5 - 4 = 1 apples.", (1, 0, 1), ("verb",)),
        (0, "1) buys 7, so 4 + 7 = 11 apples.", (1, 0, 1), ("carried",)),
        (0, "1) buys 7, so 5 + 7 = 12 pears.", (1, 0, 1), ("unit",)),
        (0, "1) is about Tom, so still 5 apples.", (1, 0, 1), ("person",)),
        (1, "2) is about Ann, so still 12 apples.", (1, 1, 1), ()),
        (1, "2) is about Bob, so still 12 apples.", (1, 0, 1), ("name",)),
        (1, "2) sells 6, so 12 - 6 = 6 apples.", (1, 0, 1), ("person",)),
        (1, "3) takes back 2, so 12 + 2 = 14 apples.", (1, 0, 1), ("skipped",)),
        (1, "1) buys 7, so 12 + 7 = 19 apples.", (1, 0, 1), ("contradiction",)),
        (1, "1) buys 7, which makes 5 + 7 = 12 apples.", (1, 1, 0), ("repetition",)),
        (1, "So far that is 12 apples.", (1, 1, 0), ("restatement",)),
        (1, "If that is 12 apples, then 12 apples it is.", (1, 1, 0), ("circular",)),
        (1, "Next we read 2).", (1, 1, 0), ("planning",)),
        (1, "Next we read 4).", (1, 0, 0), ("planning", "event")),
        (1, "7) buys 7, so 12 + 7 = 19 apples.", (1, 0, 1), ("event",)),
        (2, "3) takes back 2, so 12 - 2 = 10 apples.", (0, 1, 1), ("misreading",)),
        (3, "4) doubles them, so 14 * 2 = 28 apples.", (1, 1, 1), ()),
        (3, "The answer is \\boxed{14}.", (1, 0, 1), ("early",)),
        (4, "The answer is \\boxed{28}.", (1, 1, 1), ()),
        (4, "The answer is \\boxed{27}.", (1, 0, 1), ("answer",)),
    ],
)
def test_oracle_labels(done: int, step: str, labels: tuple[int, int, int], faults: tuple[str, ...]) -> None:
    right = [w.text for w in write_solution(STORY, random.Random(0), Habits(flourish=0))]
    verdict = assess_all(STORY, [*right[:done], step])[-1]
    assert verdict is not None
    assert verdict.labels == labels
    assert verdict.faults == faults


@pytest.mark.parametrize(
    "step", ["", "1) buys 07, so 5 + 7 = 12 apples.", "<extra>", "1) buys 7, so 5 + 7 = 12 apples. "]
)
def test_text_outside_the_grammar_has_no_label(step: str) -> None:
    assert assess(STORY, begin(STORY), step) is None
