"""Overlap between training data and benchmarks: equal and nearly equal problems, equal steps.

Two texts are near when the Jaccard similarity of their word 3-shingles reaches a threshold. MinHash signatures find the
candidates (datasketch's LSH), the exact similarity decides, so the result does not depend on the signatures' luck
except for what they miss.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from datasketch import MinHash, MinHashLSH

from stages.core.records import normalise

_WORD = re.compile(r"\w+|[^\w\s]")
_SHINGLE = 3
_PERMUTATIONS = 128


def shingles(text: str) -> frozenset[str]:
    """Runs of three words or signs of the normalised text; the whole text where it is shorter."""
    words = _WORD.findall(normalise(text))
    if len(words) <= _SHINGLE:
        return frozenset([" ".join(words)])
    return frozenset(" ".join(words[i : i + _SHINGLE]) for i in range(len(words) - _SHINGLE + 1))


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Size of the intersection over size of the union."""
    union = len(left | right)
    return len(left & right) / union if union else 1.0


class NearIndex:
    """Texts by key, asked for those near another text."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._lsh = MinHashLSH(threshold=threshold, num_perm=_PERMUTATIONS)
        self._shingles: dict[str, frozenset[str]] = {}

    def add(self, key: str, text: str) -> None:
        """Remember a text under a new key."""
        self._shingles[key] = pieces = shingles(text)
        self._lsh.insert(key, _signature(pieces))

    def near(self, text: str) -> list[tuple[str, float]]:
        """``(key, similarity)`` of every remembered text that reaches the threshold, the nearest first."""
        pieces = shingles(text)
        found = [(key, jaccard(pieces, self._shingles[key])) for key in self._lsh.query(_signature(pieces))]
        return sorted((hit for hit in found if hit[1] >= self.threshold), key=lambda hit: (-hit[1], hit[0]))


def _signature(pieces: frozenset[str]) -> MinHash:
    signature = MinHash(num_perm=_PERMUTATIONS, seed=1)
    signature.update_batch([piece.encode() for piece in sorted(pieces)])
    return signature


def groups(problems: Mapping[str, str], threshold: float) -> dict[str, str]:
    """The group of each problem (by id): near problems share one, named by its smallest id (union-find)."""
    parent = {key: key for key in problems}

    def root(key: str) -> str:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    index = NearIndex(threshold)
    for key in sorted(problems):
        for other, _ in index.near(problems[key]):
            low, high = sorted((root(key), root(other)))
            parent[high] = low
        index.add(key, problems[key])
    return {key: root(key) for key in problems}


@dataclass(frozen=True, slots=True)
class BenchmarkText:
    """One benchmark item as text: ``benchmark`` is e.g. ``processbench/gsm8k``."""

    benchmark: str
    id: str
    problem: str
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A training problem that a benchmark holds too; ``kind`` is exact (equal when normalised) or near."""

    problem_id: str
    benchmark: str
    benchmark_id: str
    kind: str
    similarity: float


def problem_hits(problems: Mapping[str, str], items: Sequence[BenchmarkText], threshold: float) -> list[Hit]:
    """Every (training problem, benchmark item) pair that is exact or near, in the items' order."""
    index = NearIndex(threshold)
    exact: dict[str, str] = {}
    for key in sorted(problems):
        index.add(key, problems[key])
        exact[normalise(problems[key])] = key
    hits, seen = [], dict[str, list[tuple[str, str, float]]]()
    for item in items:
        text = normalise(item.problem)
        if text not in seen:
            same = exact.get(text)
            near = [(key, "near", value) for key, value in index.near(item.problem) if key != same]
            seen[text] = ([(same, "exact", 1.0)] if same is not None else []) + near
        hits += [Hit(key, item.benchmark, item.id, kind, value) for key, kind, value in seen[text]]
    return hits


def shared_steps(training: Iterable[str], items: Sequence[BenchmarkText]) -> dict[str, tuple[int, int]]:
    """For each benchmark: ``(steps, steps whose normalised text stands in the training data too)``."""
    known = {normalise(step) for step in training}
    counts: dict[str, tuple[int, int]] = {}
    for item in items:
        steps, shared = counts.get(item.benchmark, (0, 0))
        found = sum(normalise(step) in known for step in item.steps)
        counts[item.benchmark] = (steps + len(item.steps), shared + found)
    return counts
