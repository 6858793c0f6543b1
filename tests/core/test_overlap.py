from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from stages.core.overlap import BenchmarkText, groups, jaccard, problem_hits, shared_steps, shingles

LONG = " ".join(f"word{i}" for i in range(60))


def test_equal_after_normalisation_is_exact_and_a_changed_word_is_near() -> None:
    items = [
        BenchmarkText("b", "1", "  " + LONG.upper() + "\n"),
        BenchmarkText("b", "2", LONG.replace("word30", "other")),
        BenchmarkText("b", "3", "something else entirely, with nothing in common"),
    ]
    hits = problem_hits({"p": LONG, "q": "a b c d e f g"}, items, 0.8)
    assert [(hit.problem_id, hit.benchmark_id, hit.kind) for hit in hits] == [("p", "1", "exact"), ("p", "2", "near")]


def test_near_problems_share_a_group_through_a_chain() -> None:
    second = LONG.replace("word10 ", "x ")
    third = second.replace("word50 ", "y ")
    found = groups({"a": LONG, "b": second, "c": third, "d": "quite another text than those three"}, 0.85)
    assert found["a"] == found["b"] == found["c"] != found["d"]


def test_groups_do_not_depend_on_the_order() -> None:
    rng = random.Random(3)
    texts = {str(i): LONG.replace(f"word{i} ", f"z{i} ") if i % 2 else f"text number {i} " * 9 for i in range(20)}
    shuffled = list(texts.items())
    rng.shuffle(shuffled)
    assert groups(dict(shuffled), 0.8) == groups(texts, 0.8)


def test_shared_steps_are_counted_by_benchmark() -> None:
    items = [BenchmarkText("a", "1", "p", ("One  step.", "two")), BenchmarkText("b", "1", "p", ("three",))]
    assert shared_steps(["one step.", "THREE"], items) == {"a": (2, 1), "b": (1, 1)}


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_similarity_is_symmetric_and_one_for_equal_texts(left: str, right: str) -> None:
    a, b = shingles(left), shingles(right)
    assert jaccard(a, b) == jaccard(b, a)
    assert 0.0 <= jaccard(a, b) <= 1.0
    assert jaccard(a, a) == 1.0
