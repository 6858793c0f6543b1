"""Verdicts of comparisons in this process: what a grader's worker decides. ``test_grading`` runs the worker itself."""

from __future__ import annotations

from itertools import permutations, product

import math_verify  # noqa: F401 - here and not in the first test, so that the forks of `make mutate` share it
import pytest

from pathfinder.benchmarks.grading import (
    Grader,
    GradingPreset,
    _compare,
    _matches,
    _same_text,
    boxes,
    extract_boxed,
    gold_of,
    last_boxed,
    pass_at_k,
    split_answers,
)

RIGHT, WRONG, UNREAD, ERROR = (True, None), (False, None), (False, "unread"), (False, "error")
NOTHING = "\\text{}"
"""math-verify reads nothing in this text."""


@pytest.mark.parametrize(
    ("preset", "gold", "answer", "verdict"),
    [
        ("official", ("x^2 - 1",), "(x-1)(x+1)", RIGHT),
        ("official", ("x^2 - 1",), "x - 1", WRONG),
        ("official", ("5", "6"), "5", RIGHT),
        ("official", ("2", "3"), "3, 2", WRONG),
        ("official", (NOTHING,), "5", UNREAD),
        ("official", (NOTHING,), NOTHING, UNREAD),
        ("official", ("\\frac{1}{0}",), "\\frac{1}{0}", RIGHT),
        ("official", ("\\frac{1}{0}",), "\\frac{2}{0}", ERROR),
        ("official", ("x < 3",), "(-\\infty, 3)", RIGHT),
        ("official", ("(-\\infty, 3)",), "x < 3", WRONG),
        ("repaired", ("x^2 - 1",), "(x-1)(x+1)", RIGHT),
        ("repaired", ("x^2 - 1",), "x - 1", WRONG),
        ("repaired", (NOTHING,), "5", UNREAD),
        ("repaired", (NOTHING,), "$ \\text{ } $", RIGHT),
        ("repaired", ("\\frac{1}{0}",), "\\frac{2}{0}", ERROR),
        ("repaired", ("1", "2"), "\\{1, 2\\}", RIGHT),
        ("repaired", ("1", "2"), "\\{1, 3\\}", WRONG),
        ("repaired", ("(3,0)", "(-3,1)"), "(-3,1), (3,0)", RIGHT),
        ("repaired", ("(3,0)", "(-3,1)"), "(-3,1), (3,1)", WRONG),
        ("repaired", ("(3,0)", "(-3,1)"), "(3,0)", WRONG),
        ("repaired", ("(3,0)", f"{NOTHING}x"), f"{NOTHING}x, (3,0)", RIGHT),
        ("repaired", ("0.5", "\\text{yes}"), "\\text{yes}, 1/2", RIGHT),
        ("repaired", (NOTHING, "5"), "6, 7", WRONG),
        ("repaired", (NOTHING, NOTHING), "6", WRONG),
    ],
)
def test_the_verdict_of_a_comparison(
    preset: GradingPreset, gold: tuple[str, ...], answer: str, verdict: tuple[bool, str | None]
) -> None:
    assert _compare(preset, gold, answer) == verdict


def test_texts_are_the_same_apart_from_white_space_and_dollars_around_them() -> None:
    for left, right in (("a b", "ab"), ("$a$", "a"), ("a", " $ a $"), ("$a b$", "a\n b")):
        assert _same_text(left, right), (left, right)
    for left, right in (("a", "b"), ("a$b", "ab"), ("Xa", "a"), ("a", "aX")):
        assert not _same_text(left, right), (left, right)


def test_matching_finds_an_assignment_exactly_where_there_is_one() -> None:
    for size in (1, 2, 3):
        for cells in product((True, False), repeat=size * size):
            table = [list(cells[row * size : (row + 1) * size]) for row in range(size)]
            possible = any(all(table[r][c] for r, c in enumerate(order)) for order in permutations(range(size)))
            assert _matches(table) is possible, table


def test_answers_are_split_outside_of_brackets_only() -> None:
    for text, parts in (
        ("(1,2),3", ["(1,2)", "3"]),
        ("[1,2],3", ["[1,2]", "3"]),
        ("{1,2},3", ["{1,2}", "3"]),
        ("((1,2),3),4", ["((1,2),3)", "4"]),
        ("1 and 2", ["1", "2"]),
        ("1\\text{ and }2", ["1", "2"]),
        ("$1$, $2$", ["1", "2"]),
        ("1,, 2 ,", ["1", "2"]),
        ("sand, band", ["sand", "band"]),
    ):
        assert split_answers(text) == parts


def test_keys_are_read_as_each_preset_reads_them() -> None:
    for set_name, key, repaired, official in (
        ("minerva_math", "it is \\boxed{5}", ("5",), ("5",)),
        ("minerva_math", "\\boxed{5} or \\boxed{6}", ("\\boxed{5} or \\boxed{6}",), ("\\boxed{5} or \\boxed{6}",)),
        ("minerva_math", 7, ("7",), ("7",)),
        ("amc23", 27.0, ("27",), ("27.0",)),
        ("amc23", 27.5, ("27.5",), ("27.5",)),
        ("aime24", 25, ("25",), ("25",)),
        ("college_math", " $ x $ ", ("x",), (" $ x $ ",)),
        ("college_math", "$x", ("$x",), ("$x",)),
        ("college_math", "x$", ("x$",), ("x$",)),
        ("college_math", "$$", ("$$",), ("$$",)),
        ("college_math", "$x$ and $y$", ("$x$ and $y$",), ("$x$ and $y$",)),
        ("olympiadbench", ["$2$", 3.0], ("2", "3"), ("['$2$', 3.0]",)),
    ):
        assert gold_of(set_name, key, "repaired") == repaired
        assert gold_of(set_name, key, "official") == official


def test_boxes_end_at_the_brace_that_closes_them() -> None:
    assert boxes("\\boxed{}\\boxed{{}}x\\boxed{a}}") == ["", "{}", "a"]
    assert boxes("\\boxed{1} \\boxed{2 \\boxed{3}") == ["1"]
    assert (extract_boxed("x"), extract_boxed("\\boxed{1}"), last_boxed("\\boxed{1}")) == (None, "1", "1")


def test_integers_are_compared_without_a_worker() -> None:
    with Grader() as grader:
        assert grader.is_right(("-5",), "-5")
        assert not grader.is_right(("5",), "-5", "official")
        assert grader.is_right(("5", "6"), "5", "official")
        assert grader.is_right(("27.0",), "27", "official")
        assert grader.is_right(("['27']",), " 27", "official")
        assert not grader.is_right(("$1$",), "0", "official")
        assert grader.votes(["7", "8", None, "8", "7", "9"]) == ["7", "8", None, "8", "7", "9"]
        assert (grader.failures, grader._known) == ({}, {})


def test_pass_at_k_at_its_limits() -> None:
    assert [pass_at_k(0, 1, 1), pass_at_k(1, 1, 1), pass_at_k(1, 4, 4), pass_at_k(1, 4, 1)] == [0, 1, 1, 0.25]
    for right, n, k in ((-1, 4, 1), (5, 4, 1), (2, 4, 0), (2, 4, 5)):
        with pytest.raises(ValueError, match=f"{right} of {n} right, k {k}; expected 0 <= right <= n and 1 <= k <= n"):
            pass_at_k(right, n, k)
