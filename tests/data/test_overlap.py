from __future__ import annotations

import random
import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathfinder.core.prompts import digest
from pathfinder.core.records import normalise
from pathfinder.data.near import WORD, NearTexts
from pathfinder.data.overlap import (
    BenchmarkText,
    NearIndex,
    StepIndex,
    best_of,
    jaccard,
    problem_hits,
    shingles,
    step_figures,
)

LONG = " ".join(f"word{i}" for i in range(60))


def test_equal_after_normalisation_is_exact_and_a_changed_word_is_near() -> None:
    items = [
        BenchmarkText("b", "1", "  " + LONG.upper() + "\n"),
        BenchmarkText("b", "2", LONG.replace("word30", "other")),
        BenchmarkText("b", "3", "something else entirely, with nothing in common"),
    ]
    hits = problem_hits(NearIndex({"p": LONG, "q": "a b c d e f g"}, 0.8), items)
    assert [(hit.problem_id, hit.benchmark_id, hit.kind) for hit in hits] == [("p", "1", "exact"), ("p", "2", "near")]


def test_near_problems_share_a_group_through_a_chain() -> None:
    second = LONG.replace("word10 ", "x ")
    third = second.replace("word50 ", "y ")
    found = NearIndex({"a": LONG, "b": second, "c": third, "d": "quite another text than those three"}, 0.85).groups(
        "abcd"
    )
    assert found["a"] == found["b"] == found["c"] != found["d"]


def test_groups_do_not_depend_on_the_order() -> None:
    rng = random.Random(3)
    texts = {str(i): LONG.replace(f"word{i} ", f"z{i} ") if i % 2 else f"text number {i} " * 9 for i in range(20)}
    shuffled = list(texts.items())
    rng.shuffle(shuffled)
    in_order = NearIndex(texts, 0.8).groups(texts)
    assert NearIndex(dict(shuffled), 0.8).groups(reversed(texts)) == in_order
    assert len(set(in_order.values())) < len(texts)


def test_steps_match_exactly_or_nearly_and_short_ones_only_exactly() -> None:
    changed = LONG.replace("word30", "other")
    items = [
        BenchmarkText("a", "1", "p", ("One  step.", "two", LONG)),
        BenchmarkText("b", "1", "p", (LONG, "something else entirely with nothing in common but its length, say")),
    ]
    index = StepIndex(items, 0.8)
    near = best_of(index.match(pl.Series(["one step.", "twos", changed])).values())
    assert step_figures(index, near) == {
        "a": {"exact_steps": 1, "exact_short_steps": 1, "near_steps": 1},
        "b": {"exact_steps": 0, "exact_short_steps": 0, "near_steps": 1},
    }
    assert near[2].digest == digest(normalise(changed))
    assert near[2].similarity == jaccard(shingles(LONG), shingles(changed))
    both = best_of(index.match(pl.Series(["  " + LONG.upper(), changed])).values())
    assert both[2].kind == "exact", "an equal step is better than a near one"
    assert best_of([near, both]) == best_of([both, near])
    assert step_figures(index, best_of([near, both]))["b"]["exact_steps"] == 1


WORDS = st.sampled_from(["so", "x", "=", "2", "then", "<+>", "the", "sum", "of", "é", "\x07", "{", "we"])
TEXTS = st.lists(st.lists(WORDS, min_size=3, max_size=14).map(" ".join).map(normalise), max_size=12)


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS, st.sampled_from([0.5, 0.8, 1.0]))
def test_the_join_finds_every_near_pair_and_no_other(held: list[str], asked: list[str], threshold: float) -> None:
    held, asked = ([text for text in texts if len(re.findall(WORD, text)) >= 3] for texts in (held, asked))
    expected = {
        (i, j, value)
        for i, left in enumerate(asked)
        for j, right in enumerate(held)
        if (value := jaccard(shingles(left), shingles(right))) >= threshold
    }
    assert set(NearTexts(held, threshold).ask(asked)) == expected


def test_the_join_does_not_depend_on_how_many_are_asked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    texts = [" ".join(rng.choice("ab") for _ in range(rng.randint(3, 9))) for _ in range(400)]
    whole = set(NearTexts(texts[:200], 0.7).ask(texts[200:]))
    monkeypatch.setattr("pathfinder.data.near._TEXTS", 7)
    monkeypatch.setattr("pathfinder.data.near._ROWS", 11)
    assert set(NearTexts(texts[:200], 0.7).ask(texts[200:])) == whole
    assert len(whole) > 20


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_similarity_is_symmetric_and_one_for_equal_texts(left: str, right: str) -> None:
    a, b = shingles(left), shingles(right)
    assert jaccard(a, b) == jaccard(b, a)
    assert 0.0 <= jaccard(a, b) <= 1.0
    assert jaccard(a, a) == 1.0
