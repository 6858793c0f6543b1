from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ground.text import normalise
from pathfinder.data.near_duplicates import NearDuplicates

WORDS = st.sampled_from(["so", "x", "=", "2", "then", "<+>", "the", "sum", "of", "é", "\x07", "{", "we"])
TEXTS = st.lists(st.lists(WORDS, max_size=14).map(" ".join).map(normalise), max_size=12)


def shingles(text: str) -> frozenset[str]:
    """Runs of three words or signs of the normalised text; a shorter text is one shingle."""
    words = re.findall(r"\w+|[^\w\s]", normalise(text))
    return frozenset(" ".join(words[at : at + 3]) for at in range(max(len(words) - 3, 0) + 1))


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Size of the intersection over size of the union."""
    return len(left & right) / len(left | right)


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, st.sampled_from([0.5, 0.8, 1.0]))
def test_the_join_finds_every_near_pair_and_no_other(indexed: list[str], texts: list[str], threshold: float) -> None:
    expected = {
        (i, j, value)
        for i, left in enumerate(texts)
        for j, right in enumerate(indexed)
        if (value := jaccard(shingles(left), shingles(right))) >= threshold
    }
    assert set(NearDuplicates(indexed, threshold).pairs(texts)) == expected


def test_the_join_does_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    texts = [" ".join(rng.choice("ab") for _ in range(rng.randint(3, 9))) for _ in range(400)]
    whole = set(NearDuplicates(texts[:200], 0.7).pairs(texts[200:]))
    monkeypatch.setattr("pathfinder.data.near_duplicates._TEXTS", 7)
    monkeypatch.setattr("pathfinder.data.near_duplicates._PAIRS", 5)
    assert set(NearDuplicates(texts[:200], 0.7).pairs(texts[200:])) == whole
    assert len(whole) > 20
