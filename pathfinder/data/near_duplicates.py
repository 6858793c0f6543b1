"""Find the near duplicates of a small set of texts among very many: an exact join on word 3-shingles, in arrays.

Two texts are near duplicates if the Jaccard similarity of their shingle sets reaches a threshold. Near duplicates share
one of the rarest shingles of each, so only such pairs are compared (prefix filtering, Chaudhuri et al. 2006, "A
primitive operator for similarity joins"). No pair is missed. Time is linear in the number of texts; memory depends on
the small set. Words and shingles are 64-bit hashes; among ten million, a collision has a probability of about 1e-5.
The work runs outside the interpreter's lock, in one thread per chunk of texts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

WORD = r"\w+|[^\w\s]"
"""A word or sign of a normalised text."""
SHINGLE = 3
_TEXTS = 8192  # per chunk
_ROWS = 4_000_000  # compared at once
_MIX = tuple(np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))

Array = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Pair = tuple[int, int, float]
"""The place of a text, the place of its near duplicate in the index, and their similarity."""


class NearDuplicates:
    """An index of normalised texts. A text of fewer than ``shortest`` words has no near duplicates."""

    def __init__(self, texts: Sequence[str], threshold: float, shortest: int = SHINGLE) -> None:
        self.threshold, self.shortest = threshold, shortest
        owner, hashes, lengths = self._sets(texts)
        self.is_short = lengths < shortest
        """(texts,) bool"""
        self._shingles, ids, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        rarity = np.empty(len(counts), dtype=np.int64)
        rarity[np.argsort(counts, kind="stable")] = np.arange(len(counts))
        self._rank = rarity
        rank = rarity[ids]
        self._sizes = np.bincount(owner, minlength=len(texts)).astype(np.int64)
        order = np.lexsort((rank, owner))
        owner, rank = owner[order], rank[order]
        self._keys = owner * len(counts) + rank
        first = _places(self._sizes) < self._sizes[owner] - self._least(self._sizes)[owner] + 1
        by_rank = np.argsort(rank[first], kind="stable")
        self._posted = owner[first][by_rank]
        self._posts = np.searchsorted(rank[first][by_rank], np.arange(len(counts) + 1))

    def pairs(self, texts: Sequence[str]) -> Iterator[Pair]:
        """Every pair of a text and a near duplicate in the index; a pair may be repeated."""
        starts = range(0, len(texts), _TEXTS)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            chunks = threads.map(lambda start: self._pairs(texts[start : start + _TEXTS]), starts)
            for start, found in zip(starts, chunks, strict=True):
                for place, indexed, similarity in found:
                    yield start + place, indexed, similarity

    def _pairs(self, texts: Sequence[str]) -> list[Pair]:
        owner, hashes, _ = self._sets(texts)
        sizes = np.bincount(owner, minlength=len(texts)).astype(np.int64)
        order = np.argsort(hashes)
        place = np.empty(len(hashes), dtype=np.int64)
        place[order] = np.searchsorted(self._shingles, hashes[order])  # sorted queries are six times as fast
        place = np.minimum(place, max(len(self._shingles) - 1, 0))
        known = self._shingles[place] == hashes if len(self._shingles) else np.zeros(len(hashes), dtype=np.bool_)
        owner, rank = owner[known], self._rank[place[known]]
        counts = np.bincount(owner, minlength=len(texts)).astype(np.int64)
        enough = (counts >= self._least(sizes))[owner]  # fewer known shingles cannot reach the threshold
        owner, rank = owner[enough], rank[enough]
        counts = np.bincount(owner, minlength=len(texts)).astype(np.int64)
        order = np.argsort(owner * len(self._rank) + rank)
        owner, rank = owner[order], rank[order]
        starts = np.cumsum(counts) - counts
        first = np.flatnonzero(_places(counts) < (counts - self._least(sizes) + 1)[owner])
        postings = self._posts[rank[first] + 1] - self._posts[rank[first]]
        found: list[Pair] = []
        for rows in _slices(postings):
            repeat = np.repeat(first[rows], postings[rows])
            indexed = self._posted[np.repeat(self._posts[rank[first[rows]]], postings[rows]) + _places(postings[rows])]
            pairs = np.unique(owner[repeat] * len(self._sizes) + indexed)
            left, right = np.divmod(pairs, max(len(self._sizes), 1))
            short, long = np.minimum(sizes[left], self._sizes[right]), np.maximum(sizes[left], self._sizes[right])
            fit = short >= self._least(long)
            left, right = left[fit], right[fit]
            for some in _slices(counts[left]):
                found += self._compare(left[some], right[some], sizes, (rank, starts, counts))
        return found

    def _compare(self, left: Array, right: Array, sizes: Array, shingles: tuple[Array, Array, Array]) -> list[Pair]:
        """The pairs that reach the threshold; ``shingles`` are those of the texts, with their starts and counts."""
        rank, starts, counts = shingles
        lengths = counts[left]
        mine = rank[np.repeat(starts[left], lengths) + _places(lengths)]
        keys = np.repeat(right, lengths) * len(self._rank) + mine
        found = self._keys[np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)] == keys
        common = np.add.reduceat(found.astype(np.int64), np.cumsum(lengths) - lengths)
        similarity = common / (sizes[left] + self._sizes[right] - common)
        near = np.flatnonzero(similarity >= self.threshold)
        return list(zip(left[near].tolist(), right[near].tolist(), similarity[near].tolist(), strict=True))

    def _least(self, sizes: Array) -> Array:
        """How many shingles a set of this size shares with a near duplicate, at least; (texts,) like ``sizes``."""
        least: Array = np.maximum(np.ceil(self.threshold * sizes - 1e-9).astype(np.int64), 1)
        return least

    def _sets(self, texts: Sequence[str]) -> tuple[Array, Hashes, Array]:
        """The shingle sets: place of the text and shingle, both (shingles,), ordered by text; word counts, (texts,)."""
        split = pl.Series(texts, dtype=pl.String).str.extract_all(WORD)
        lengths: Array = split.list.len().cast(pl.Int64).to_numpy()
        numbers = split.filter(split.list.len() > 0).explode().hash().to_numpy()
        owner = np.repeat(np.arange(len(lengths)), lengths)
        if len(numbers) < SHINGLE:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64), lengths
        shingle = np.zeros(len(numbers) - SHINGLE + 1, dtype=np.uint64)
        for offset, odd in enumerate(_MIX):
            mixed = (numbers[offset : offset + len(shingle)] + np.uint64(1)) * odd
            shingle = (shingle ^ mixed ^ (mixed >> np.uint64(29))) * _MIX[1]
        whole = (owner[: len(shingle)] == owner[SHINGLE - 1 :]) & (lengths >= self.shortest)[owner[: len(shingle)]]
        owner, shingle = owner[: len(shingle)][whole], shingle[whole]
        bits = np.uint64(len(texts).bit_length())
        order = np.argsort(owner.astype(np.uint64) << (np.uint64(64) - bits) | shingle >> bits)
        owner, shingle = owner[order], shingle[order]
        new = np.ones(len(owner), dtype=np.bool_)
        new[1:] = (owner[1:] != owner[:-1]) | (shingle[1:] != shingle[:-1])
        return owner[new], shingle[new], lengths


def _places(counts: Array) -> Array:
    """0, 1, … within each run of the given lengths."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _slices(costs: Array) -> Iterator[slice]:
    """Consecutive rows that cost about ``_ROWS`` in total."""
    block = np.cumsum(costs) // _ROWS
    edges = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(costs)]
    yield from (slice(start, end) for start, end in pairwise(edges) if end > start)
