"""Grading with the real math-verify in its worker: keys, failures, majority and pass@k."""

from __future__ import annotations

import logging
import math
import resource
import sys
import threading
from collections.abc import Iterator
from itertools import combinations, product

import pytest

from pathfinder.benchmarks.grading import (
    Grader,
    GradingPreset,
    boxes,
    extract_boxed,
    gold_of,
    last_boxed,
    majority,
    pass_at_k,
    split_answers,
)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as grader:
        yield grader


@pytest.mark.parametrize(
    ("set_name", "key", "answer", "right"),
    [
        ("math", "\\frac{1}{2}", "0.5", True),
        ("math", "\\left( 3, \\frac{\\pi}{2} \\right)", "(3, \\pi/2)", True),
        ("math", "\\left( 3, \\frac{\\pi}{2} \\right)", "(3, \\pi)", False),
        ("aime24", "204", "204", True),
        ("aime24", "025", "25", True),
        ("amc23", 27.0, "27", True),
        ("amc23", 27.0, "28", False),
        ("college_math", "$10-4 n$", "-4n + 10", True),
        ("minerva_math", "so the answer is $\\boxed{1.6} \\mathrm{~cm}$", "1.6", True),
        ("olympiadbench", ["2"], "2", True),
        ("olympiadbench", ["2"], "3", False),
        ("olympiadbench", ["$\\frac{10}{3}$"], "\\frac{10}{3}", True),
        ("olympiadbench", ["5,15"], "15, 5", True),
        ("olympiadbench", ["5,15"], "5", False),
        ("olympiadbench", ["$(3,0),(-3,1)$"], "(-3,1),(3,0)", True),
        ("olympiadbench", ["$(3,0),(-3,1)$"], "(3,1),(-3,0)", False),
        ("olympiadbench", ["16,3,1,1"], "16, 3, 1, 1", True),
        ("math", "\\frac12", "½", True),
        ("math", "2½", "2.5", True),
        ("math", "\\frac12", "¼", False),
    ],
)
def test_every_answer_key(grader: Grader, set_name: str, key: object, answer: str, right: bool) -> None:
    assert grader.is_right(gold_of(set_name, key, "repaired"), answer) is right


def test_official_compares_lists_as_printed(grader: Grader) -> None:
    """Nobody answers str(["5,15"]), which is why the published grading has a ceiling."""
    for key, answer in ((["5,15"], "5,15"), (["$8 \\sqrt{2}$"], "8 \\sqrt{2}"), (["$2 n$"], "2 n")):
        assert not grader.is_right(gold_of("olympiadbench", key, "official"), answer, "official")
        assert grader.is_right(gold_of("olympiadbench", key, "repaired"), answer)
    assert not grader.is_right(("\\frac12",), "½", "official")


def test_an_error_between_two_readings_does_not_hide_that_two_others_are_equal(grader: Grader) -> None:
    """sympy cannot compare 1/0 with itself; math-verify then compares the texts."""
    before = grader.failures.total()
    assert grader.is_right(("\\frac{1}{0}",), "\\frac{1}{0}", "official")
    assert grader.failures.total() == before
    assert not grader.is_right(("\\frac{1}{0}",), "\\frac{2}{0}", "official")


@pytest.mark.parametrize(("answer", "right"), [("10\\%", True), ("10", True), ("0.1", False)])
def test_per_cent_is_read_as_antlr_4_9_reads_it(grader: Grader, answer: str, right: bool) -> None:
    """The difference that docs/benchmarks.md names: ANTLR 4.13 reads 1/10."""
    assert grader.is_right(gold_of("math", "10\\%", "official"), answer, "official") is right


@pytest.mark.parametrize("preset", ["repaired", "official"])
def test_integers_get_the_verdict_of_the_worker(grader: Grader, preset: GradingPreset) -> None:
    written = [form.format(n) for n in (0, -7, 12, 10**17) for form in ("{}", "{}.0", "${}$", "['{}']", " $ {} $ ")]
    for gold, answer in product(written, written[5:11]):
        verdict = grader._compare(preset, (gold,), answer)
        assert verdict == (grader.is_right((gold,), answer, preset), None), (gold, answer)
        assert verdict[0] is (written.index(gold) // 5 == written.index(answer) // 5)


def test_no_answer_is_never_right(grader: Grader) -> None:
    assert not grader.is_right(("5",), None)
    assert not grader.is_right(("5",), "")


def test_several_keys_are_all_compared(grader: Grader) -> None:
    assert grader.is_right(("5", "x^2"), "x^2, 5")
    assert not grader.is_right(("5", "x^2"), "5")


def test_comparisons_without_a_verdict_are_counted_once_per_pair() -> None:
    main = sys.modules["__main__"]
    with Grader() as grader:
        for answer in ("5", "6", "5"):
            assert not grader.is_right(("\\text{}",), answer)
        assert grader.failures == {"unread": 2}
    assert sys.modules["__main__"] is main, "a worker starts without it and gives it back"


def test_the_worker_is_silent_and_its_memory_bounded(grader: Grader) -> None:
    limits = grader._pool.schedule(resource.getrlimit, args=(resource.RLIMIT_AS,)).result()
    assert limits == (4 << 30, 4 << 30)
    speaks = grader._pool.schedule(logging.getLogger("math_verify").isEnabledFor, args=(logging.WARNING,)).result()
    assert not speaks, "math-verify would warn at each comparison that its time limits are off"
    assert grader._pool.schedule(logging.getLogger("math_verify").isEnabledFor, args=(logging.ERROR,)).result()


def test_threads_share_a_grader(grader: Grader) -> None:
    found: list[bool] = []
    lock = threading.Lock()

    def work(n: int) -> None:
        right = grader.is_right((f"{n}/7",), f"\\frac{{{2 * n}}}{{14}}")
        with lock:
            found.append(right)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8


def test_equal_answers_vote_for_the_first_spelling(grader: Grader) -> None:
    votes = grader.votes(["3", None, "1/2", "0.5", "3", "\\frac{1}{2}"])
    assert votes == ["3", None, "1/2", "1/2", "3", "1/2"]
    assert majority(votes) == "1/2"
    assert grader.votes([]) == []


def test_the_majority_wins_and_ties_go_to_the_earliest() -> None:
    assert majority(["4", None, None, None]) == "4"
    assert majority([None, 3, 1, 1, 3]) == 3
    assert majority([-1, 2, 2]) == 2
    assert majority([None, None]) is None
    assert majority([]) is None


def test_pass_at_k_is_the_mean_over_all_choices() -> None:
    for right in range(6):
        for k in range(1, 6):
            hits = [any(i < right for i in chosen) for chosen in combinations(range(5), k)]
            assert math.isclose(pass_at_k(right, 5, k), sum(hits) / len(hits))


def test_boxes() -> None:
    assert boxes("\\boxed{\\frac{1}{2}} and \\boxed{3}") == ["\\frac{1}{2}", "3"]
    assert extract_boxed("\\boxed{1} \\boxed{1}") is None
    assert extract_boxed("so \\boxed{ {a} }") == " {a} "
    assert extract_boxed("\\boxed{open") is None
    assert last_boxed("\\boxed{1} then \\boxed{2}") == "2"
    assert last_boxed("in \\boxed{}: \\boxed{1} and \\boxed{ }") == "1", "an empty box has no answer"
    assert last_boxed("none") is last_boxed("in \\boxed{}") is None


def test_split_answers() -> None:
    assert split_answers("$(1,2)$, \\frac{1}{2} and {a,b}") == ["(1,2)", "\\frac{1}{2}", "{a,b}"]
    assert split_answers("") == []
