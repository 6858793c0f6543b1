from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathfinder.core.labels import Scores
from pathfinder.core.params import Preset
from pathfinder.judge.parsing import CUT, official_scores, outside_thinking, parse_scores, read_scores
from tests.support.answer_shapes import PAGE, SHAPES, page
from tests.support.judge_answers import KINDS, Case, generate

GOOD = [
    ("Score A: 1\nScore B: 0\nScore C: 1", (1, 0, 1)),
    ("Final answers:\nScore A: \n1\nScore B: \n0\nScore C:\n1", (1, 0, 1)),
    ("**Score A:** 1\n**Score B:** {0}\n- **Score C**: **1**.", (1, 0, 1)),
    ("Score A (Mathematical logic): 1\nScore B – Consistency = `0`\nScore C: $\\boxed{1}$", (1, 0, 1)),
    ("### Score A:\n\n**1**\n\n### Score B:\n\n**0**\n\n### Score C:\n\n**0**", (1, 0, 0)),
    ("| Score A | 1 |\n| Score B | 0 |\n| Score C | 1 |", (1, 0, 1)),
    ('{"Score A": 1, "Score B": 0, "Score C": 1}', (1, 0, 1)),
    ("score a:1Score B:0SCORE C:1.0", (1, 0, 1)),
    ("Score A: 1 (fine)\nBecause it adds up.\nScore B: 0 - it uses 5\nScore C: 1", (1, 0, 1)),
    ("Score A: 0 Score B: 0 Score C: 0\nOn reflection:\nScore A: 1 Score B: 1 Score C: 0", (1, 1, 0)),
    ("The step says 'Score A: 0'.\nScore A:\n- 1\nScore B:\n- 1\nScore C:\n- 1", (1, 1, 1)),
    ("<think>Score A: 0 Score B: 0 Score C: 0</think>Score A: 1 Score B: 0 Score C: 1", (1, 0, 1)),
    (
        "the prompt opened the thought. Score A: 0 Score B: 0 Score C: 0</think>Score A: 1 Score B: 0 Score C: 1",
        (1, 0, 1),
    ),
    ("Score A: 1 Score B: 1 Score C: 0\nAll in all I gave Score A a 1, and Score C: 0.", (1, 1, 0)),
]
ONES, ZEROS = "Score A: 1\nScore B: 1\nScore C: 1\n", "Score A: 0\nScore B: 0\nScore C: 0\n"
QUOTED = "".join(f"> {line}\n" for line in ONES.splitlines())
GOOD += [
    ("Score A: 1\nSo there are 0 errors.\nScore B: 1\nScore C: 1", (1, 1, 1)),
    ("Score A: 1\nScore B: 1\nScore C: 1, so Score D: 0", (1, 1, 1)),
    (f"{ONES}Score B: see above", (1, 1, 1)),
    (f"{ONES}They say:\n{QUOTED}and again:\n{QUOTED}", (1, 1, 1)),
    (f"{ONES}They say:\n{QUOTED}Score C: 1", (1, 1, 1)),
]
BAD = [
    ("", "no_scores"),
    ("I cannot grade this.", "no_scores"),
    ("<think>Score A: 1 Score B: 1 Score C: 1", "unfinished_thinking"),
    ("Score A: 1 Score B: 1", "incomplete"),
    ("Score C: 1 Score B: 1 Score A: 1", "incomplete"),
    ("Score A: 1 Score B: 1 Score C: 0.5", "not_binary"),
    ("Score A: 2 Score B: 1 Score C: 1", "not_binary"),
    ("Score A: 10 Score B: 1 Score C: 1", "not_binary"),
    ("Score A: -1 Score B: 1 Score C: 1", "not_binary"),
    ("Score A: 1/2 Score B: 1 Score C: 1", "not_binary"),
    ("Score A: 0,5 Score B: 1 Score C: 1", "not_binary"),
    ("Score A: 1² Score B: 1 Score C: 1", "not_binary"),
    ("Score A: \n{0 or 1 only}\nScore B: \n{0 or 1 only}\nScore C:\n{0 or 1 only}", "not_binary"),
    ("Score A: 1 Score B: 1 Score C: 1\nSo, finally, Score B: 0", "contradicted"),
    ("Score A: 1 Score B: 1 Score C: 0\nOn reflection:\nScore A: 1", "incomplete"),
    ("Score A: 1 Score B: 1 Score C: 0\nOn reflection:\n- **Score A", "incomplete"),
    ("Score A: 1 Score B: 1 Score C: 1\nScore A: 3 Score B: 1 Score C: 1", "not_binary"),
    (f"{ONES}Hence Score A: 1.", "incomplete"),
    (f"Score B: 1\nScore C: 1\nScore A: 1\nThey say:\n{QUOTED}", "no_scores"),
    (f"{ZEROS}They say:\n{QUOTED}and again:\n{QUOTED}", "contradicted"),
    (f"Score A:\nScore B: 0\nScore C: 0\nThey say:\n{QUOTED}", "no_scores"),
    ("The step says “Score A: 1 Score B: 1 Score C: 1”. I cannot grade it.", "no_scores"),
    ("The step says “done” and “Score A: 1 Score B: 1 Score C: 1”. I cannot grade it.", "no_scores"),
    ("“Score A: 1 Score B: 1 Score C: 1” is what it says.", "no_scores"),
    ('The step says "Score A: 1 Score B: 1 Score C: 1". I cannot grade it.', "no_scores"),
    (f"```\n{ONES}```\nThey say:\n```\n{ZEROS}```", "contradicted"),
    (f"{ZEROS}The step:\n```\n1 + 1\n```\nThey say:\n```\n{ONES}```", "contradicted"),
]


@pytest.mark.parametrize(("text", "scores"), GOOD)
def test_reads_what_models_print(text: str, scores: tuple[int, int, int]) -> None:
    assert parse_scores(text) == Scores(*scores)


@pytest.mark.parametrize(("text", "reason"), BAD)
def test_gives_a_reason_instead_of_guessing(text: str, reason: str) -> None:
    assert parse_scores(text) == reason


@pytest.mark.parametrize(("text", "reading"), [row[1:] for row in SHAPES], ids=[row[0] for row in SHAPES])
def test_every_shape_is_read_right_or_refused_by_name(text: str, reading: str) -> None:
    read = parse_scores(text)
    assert (" ".join(map(str, read)) if isinstance(read, Scores) else read) == reading


def test_the_page_lists_every_shape() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "write the table with: python -m tests.support.answer_shapes"


def test_thinking_sections_are_removed() -> None:
    assert outside_thinking("a<think>b</think>c<THINK>d") == ("a\nc", True)
    assert outside_thinking("a</think>b<thinking>c</thinking>d") == ("b\nd", False)


@pytest.mark.parametrize("tag", ["think", "Thinking", "thought", "reasoning", "reflection", "scratchpad"])
def test_a_draft_in_a_section_of_any_name_is_not_read(tag: str) -> None:
    assert parse_scores(f"<{tag}>Score A: 1 Score B: 1 Score C: 1</{tag}>\nI cannot decide.") == "no_scores"


def test_official_expression_reads_thoughts_other_digits_and_fractions() -> None:
    assert official_scores("<think>Score A: 7 Score B: 1\nScore C: 0.5") == (7, 1, 0.5)
    assert official_scores("Score A: 1 Score B: 1 Score C: 10") == (1, 1, 1.0)
    assert official_scores("**Score A:** 1 Score B: 1 Score C: 1") is None


@pytest.mark.parametrize(
    ("text", "preset", "cut", "scores", "reason"),
    [
        ("Score A: 1\nScore B: 0\nScore C: 1", "repaired", False, (1, 0, 1), ""),
        ("Score A: 1\nScore B: 0\nScore C: 1", "repaired", True, None, CUT),
        ("Score A: 1\nScore B: 0\nScore C: 2", "repaired", False, None, "not_binary"),
        ("Score A: 1\nScore B: 0\nScore C: 1", "official", True, (1, 0, 1), ""),
        ("Score A: 7\nScore B: 1\nScore C: 0.5", "official", False, (0, 1, 0), "not_binary"),
        ("Score A: 1\nScore B: 1\nScore C: 1.0", "official", False, (1, 1, 1), ""),
        ("Score A: 1\nScore B: 1", "official", False, None, "no_scores"),
        ("Score A: 0 Score B: 0 Score C: 0 Score A: 1 Score B: 1 Score C: 0", "official", False, (1, 1, 0), ""),
    ],
)
def test_what_each_preset_makes_of_an_answer(
    text: str, preset: Preset, cut: bool, scores: tuple[int, int, int] | None, reason: str
) -> None:
    assert read_scores(text, preset, cut) == (scores and Scores(*scores), reason)


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False).map(generate))
def test_no_answer_is_read_as_other_scores(case: Case) -> None:
    assert case.accepts(parse_scores(case.text)), case


def test_every_kind_of_answer_occurs_and_cut_ones_are_read_where_they_can_be() -> None:
    random = Random(1)
    cases = [generate(random) for _ in range(3000)]
    assert {case.kind for case in cases} == set(KINDS)
    assert not [case for case in cases if not case.accepts(parse_scores(case.text))]
    cut = [parse_scores(case.text) for case in cases if case.is_cut]
    assert {isinstance(read, Scores) for read in cut} == {True, False}


@given(st.text(), st.text())
@settings(max_examples=300, deadline=None)
def test_text_around_a_block_keeps_its_scores_or_gives_a_reason(before: str, after: str) -> None:
    read = parse_scores(f"{before}\nScore A: 1\nScore B: 0\nScore C: 1\n{after}")
    assert read == Scores(1, 0, 1) or isinstance(read, str)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from(["Score A", "Score B:", "Score C", ":", " 1", "0", "\n", "<think>", "</think>", "2", "é"]))
)
def test_any_mixture_of_pieces_gives_scores_or_a_reason(pieces: list[str]) -> None:
    result = parse_scores("".join(pieces))
    assert isinstance(result, Scores) or result in (
        "no_scores",
        "unfinished_thinking",
        "incomplete",
        "not_binary",
        "contradicted",
    )


@pytest.mark.parametrize(
    "text",
    [
        "score a" * 20_000,
        "Score A: " + " " * 200_000,
        "Score A:" * 30_000,
        "<think>" * 50_000,
        '"Score A: 1 Score B: 0 Score C: 1" ' * 3_000,
    ],
)
def test_long_answers_take_linear_time(text: str) -> None:
    start = time.monotonic()
    parse_scores(text)
    assert time.monotonic() - start < 5
