from __future__ import annotations

import random
from dataclasses import replace

import polars as pl

from ground.io import text_digest
from ground.text import normalise
from pathfinder.data.overlap import (
    COUNTS,
    BenchmarkText,
    ProblemIndex,
    StepIndex,
    best_of,
    overlap_counts,
    problem_hits,
)
from tests.data.test_near_duplicates import jaccard, shingles

LONG = " ".join(f"word{i}" for i in range(60))


def test_equal_after_normalisation_is_exact_and_a_changed_word_is_near() -> None:
    items = [
        BenchmarkText("b", "1", "  " + LONG.upper() + "\n"),
        BenchmarkText("b", "2", LONG.replace("word30", "other")),
        BenchmarkText("b", "3", "something else entirely, with nothing in common"),
    ]
    hits = problem_hits(ProblemIndex({"p": LONG, "q": "a b c d e f g"}, 0.8), items)
    assert [(hit.problem_id, hit.benchmark_id, hit.kind) for hit in hits] == [("p", "1", "exact"), ("p", "2", "near")]
    counts = overlap_counts([*hits, replace(hits[1], kind="exact")], StepIndex(items, 0.8), {})["b"]
    assert counts == dict.fromkeys(COUNTS, 0) | {"exact_problems": 2}, "an item that is exact and near is exact"


def test_near_problems_share_a_group_through_a_chain() -> None:
    second = LONG.replace("word10 ", "x ")
    third = second.replace("word50 ", "y ")
    found = ProblemIndex({"a": LONG, "b": second, "c": third, "d": "quite another text than those three"}, 0.85).groups(
        "abcd"
    )
    assert found["a"] == found["b"] == found["c"] != found["d"]


def test_groups_do_not_depend_on_the_order() -> None:
    rng = random.Random(3)
    texts = {str(i): LONG.replace(f"word{i} ", f"z{i} ") if i % 2 else f"text number {i} " * 9 for i in range(20)}
    shuffled = list(texts.items())
    rng.shuffle(shuffled)
    in_order = ProblemIndex(texts, 0.8).groups(texts)
    assert ProblemIndex(dict(shuffled), 0.8).groups(reversed(texts)) == in_order
    assert len(set(in_order.values())) < len(texts)


def test_steps_match_exactly_or_nearly_and_short_ones_only_exactly() -> None:
    changed = LONG.replace("word30", "other")
    items = [
        BenchmarkText("a", "1", "p", ("One  step.", "two", LONG)),
        BenchmarkText("b", "1", "p", (LONG, "something else entirely with nothing in common but its length, say")),
    ]
    index = StepIndex(items, 0.8)
    none = dict.fromkeys(COUNTS, 0)
    near = best_of(index.match(pl.Series(["one step.", "twos", changed])).values())
    assert overlap_counts([], index, near) == {
        "a": none | {"exact_steps": 1, "exact_short_steps": 1, "near_steps": 1},
        "b": none | {"near_steps": 1},
    }
    assert near[2].digest == text_digest(normalise(changed))
    assert near[2].similarity == jaccard(shingles(LONG), shingles(changed))
    both = best_of(index.match(pl.Series(["  " + LONG.upper(), changed])).values())
    assert both[2].kind == "exact", "an equal step is better than a near one"
    assert best_of([near, both]) == best_of([both, near])
    assert overlap_counts([], index, best_of([near, both]))["b"]["exact_steps"] == 1
