"""Reading judges' answers with the published and the repaired rules, including hostile answers."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pathfinder.judge.critic_answers import (
    StepScores,
    mean_scores,
    official_box,
    official_vote,
    paragraph,
    step_scores,
)

PIECES = st.sampled_from(
    ["\\boxed{", "}", "{", "3", "-1", " ", "\n", "\\text{", "paragraph_2", "</think>", "<think>", "x", "{{", "\\boxed"]
)
TEXTS = st.lists(PIECES, max_size=25).map("".join)


@given(TEXTS)
@example("\\boxed{1 \\boxed{2}")
def test_the_official_box_is_the_published_expression(text: str) -> None:
    found = re.findall(r"\\boxed\{([^}]*)\}", text)
    assert official_box(text) == (found[-1].strip() if found else None)


@given(st.lists(TEXTS, max_size=6))
def test_the_official_vote_is_the_published_one(texts: list[str]) -> None:
    boxes = [found[-1].strip() for text in texts if (found := re.findall(r"\\boxed\{([^}]*)\}", text))]
    expected = None
    if boxes:
        try:
            expected = int(Counter(boxes).most_common(1)[0][0])
        except ValueError:
            expected = None
    assert official_vote(texts) == expected


@pytest.mark.parametrize(
    ("text", "repaired", "official"),
    [
        ("The error is in \\boxed{2}.", 2, 2),
        ("First \\boxed{1}, no: \\boxed{-1}", -1, -1),
        ("\\boxed{\\text{2}}", 2, None),
        ("\\boxed{\\text{paragraph 2}}", 2, None),
        ("\\boxed{<paragraph_2>}", 2, None),
        ("\\boxed{paragraph_2}", 2, None),
        ("\\boxed{$2$}", 2, None),
        ("\\boxed{\u22121}", -1, None),
        ("\\boxed{1 2}", None, None),
        ("\\boxed{1, 2}", None, None),
        ("\\boxed{2.0}", None, None),
        ("\\boxed{1_0}", None, 10),
        ("\\boxed{\u0663}", None, 3),
        ("\\boxed{3}", 3, 3),
        ("\\boxed{4}", None, 4),
        ("\\boxed{99}", None, 99),
        ("\\boxed{-2}", None, -2),
        ("\\boxed{" + "9" * 5000 + "}", None, None),
        ("\\boxed{}", None, None),
        ("no box", None, None),
        ("<think>\\boxed{1}</think> so \\boxed{2}", 2, 2),
        ("<think>\\boxed{1}", None, 1),
        ("<think>\\boxed{1}</think> nothing", None, 1),
    ],
)
def test_the_box_is_read_by_each_preset(text: str, repaired: int | None, official: int | None) -> None:
    assert paragraph(text, 4, cut=False) == repaired
    assert official_vote([text]) == official
    assert paragraph(text, 4, cut=True) is None


def test_a_word_can_win_as_published() -> None:
    assert official_vote(["\\boxed{3}", "\\boxed{x}", "\\boxed{x}"]) is None
    assert official_vote(["\\boxed{3}", "\\boxed{x}", "no box"]) == 3, "ties go to the earliest"


GOOD = '{"validity": [1, -0.5], "redundancy": [-1.0, 0.5]}'
READ = StepScores((1.0, -0.5), (-1.0, 0.5))


@pytest.mark.parametrize(
    ("text", "repaired", "official"),
    [
        (GOOD, READ, READ),
        (f"```json\n{GOOD}\n```", READ, READ),
        ('{"validity": [1, -0.5], // both\n "redundancy": [-1.0, 0.5]}', READ, READ),
        (f'The set {{1, 2}} … {GOOD} and {{"a": 1}}', READ, READ),
        (f'{{"a": 1}} {GOOD}', READ, None),
        (f"an open {{ brace, then {GOOD}", READ, None),
        (f"a closed }} brace, then {GOOD}", READ, None),
        ('{"validity": [1], "redundancy": [1]}', None, StepScores((1.0,), (1.0,))),
        ('{"validity": [1, 2], "redundancy": [1, 1]}', None, StepScores((1.0, 2.0), (1.0, 1.0))),
        ('{"validity": [-1.5, 1], "redundancy": [1, 1]}', None, StepScores((-1.5, 1.0), (1.0, 1.0))),
        (f'{{"notes": {{"a": {{}}}}, {GOOD[1:]}', None, READ),
        ('{"validity": [true, true], "redundancy": [1, 1]}', None, StepScores((1.0, 1.0), (1.0, 1.0))),
        ('{"validity": ["1", 1], "redundancy": [1, 1]}', None, None),
        ('{"validity": null, "redundancy": [1, 1]}', None, None),
        ('{"validity": [1, 1]}', None, None),
        (f"<think>{GOOD}</think>", None, READ),
        ('{"validity": [1, 1], "redundancy": [1, 1]} no, ' + GOOD, READ, StepScores((1.0, 1.0), (1.0, 1.0))),
        ("", None, None),
        ("[1, 2]", None, None),
    ],
)
def test_scores_are_read_by_each_preset(text: str, repaired: StepScores | None, official: StepScores | None) -> None:
    assert step_scores(text, 2, False, "repaired") == repaired
    assert step_scores(text, 2, False, "official") == official
    assert step_scores(text, 2, True, "repaired") is None


def test_only_official_accepts_scores_that_are_not_finite() -> None:
    text = '{"validity": [NaN, 1], "redundancy": [Infinity, 1]}'
    assert step_scores(text, 2, False, "repaired") is None
    found = step_scores(text, 2, False, "official")
    assert found is not None
    assert found.redundancy == (float("inf"), 1.0)


@given(TEXTS, st.sampled_from(["", GOOD, '{"validity":' * 3, '"redundancy": [', "// ", "#"]))
def test_any_answer_is_read_without_an_error(text: str, more: str) -> None:
    for answer in (text + more, more + text, text + more + text):
        paragraph(answer, 3, False)
        step_scores(answer, 2, False, "official")
        assert step_scores(answer, 2, False, "repaired") in (None, READ)


def test_endless_nesting_is_read_in_bounded_work() -> None:
    for text in ('{"validity":' * 100_000, "\\boxed{" * 100_000, "{" * 200_000, "}" * 200_000, GOOD[:-1] * 5000):
        assert paragraph(text, 3, False) is None
        assert step_scores(text, 2, False, "official") is None
        assert step_scores(text, 2, False, "repaired") is None
        assert official_box(text) is None


def test_the_mean_of_scores() -> None:
    assert mean_scores([]) is None
    assert mean_scores([READ]) == READ
    assert mean_scores([READ, StepScores((0.0,), (0.0,))]) == StepScores((0.5,), (-0.5,)), "the steps that all have"
    assert mean_scores([READ, StepScores((0.0, 0.5), (1.0, 0.5))]) == StepScores((0.5, 0.0), (0.0, 0.5))
