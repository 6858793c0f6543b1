"""Overlap between training data and benchmarks: problems and steps that are equal or near duplicates.

Two texts are near duplicates if the Jaccard similarity of their word 3-shingles reaches a threshold. Problems are few
and are also compared with each other: MinHash signatures find candidates, the exact similarity decides. Steps are many
and are compared with the benchmarks only, by ``pathfinder.data.near_duplicates``.

A step of fewer than ``SHORT`` words and signs ("So x = 2.") may be equal by chance. It has no near duplicates, and its
exact matches are counted separately.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ground.imports import without
from ground.io import text_digest
from ground.text import normalise
from pathfinder.data.near_duplicates import SHINGLE, WORD, NearDuplicates

with without("redis", later=["scipy.integrate"]):  # for stores, and for parameters that are given here
    from datasketch import MinHash, MinHashLSH

SHORT = 10
COUNTS = ("exact_problems", "near_problems", "exact_steps", "exact_short_steps", "near_steps")
_BANDS, _ROWS = 20, 6
"""LSH bands and rows: a pair of similarity 0.8 becomes a candidate with probability 0.998, one of 0.3 with 0.014."""
_PERMUTATIONS = _BANDS * _ROWS
_CHUNK = 50_000
_WORD = re.compile(WORD)


def shingles(text: str) -> frozenset[str]:
    """Runs of three words or signs of the normalised text; a shorter text is one shingle."""
    words = _WORD.findall(normalise(text))
    return frozenset(" ".join(words[i : i + SHINGLE]) for i in range(max(len(words) - SHINGLE, 0) + 1))


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Size of the intersection over size of the union; no set of ``shingles`` is empty."""
    return len(left & right) / len(left | right)


class ProblemIndex:
    """Problems by id, searched for near duplicates; ``known`` are signatures by text that need not be computed."""

    def __init__(
        self, problems: Mapping[str, str], threshold: float, known: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        self.problems, self.threshold = problems, threshold
        self._lsh = MinHashLSH(num_perm=_PERMUTATIONS, params=(_BANDS, _ROWS))
        self._empty, known = _empty_signature(), known or {}
        self._shingles = {key: shingles(problems[key]) for key in sorted(problems)}
        self._signatures = {key: self._signature(problems[key], known) for key in self._shingles}
        for key, signature in self._signatures.items():
            self._lsh.insert(key, signature)

    def near_duplicates(self, text: str) -> list[tuple[str, float]]:
        """``(id, similarity)`` of every problem that reaches the threshold, the most similar first."""
        own = shingles(text)
        found = [(key, jaccard(own, self._shingles[key])) for key in self._lsh.query(self._signature(text, {}))]
        return sorted((hit for hit in found if hit[1] >= self.threshold), key=lambda hit: (-hit[1], hit[0]))

    def groups(self, keys: Iterable[str]) -> dict[str, str]:
        """The group of each problem. Near duplicates share a group, named by its smallest id (union-find)."""
        parent = {key: key for key in keys}

        def root(key: str) -> str:
            while parent[key] != key:
                parent[key] = parent[parent[key]]
                key = parent[key]
            return key

        for key in parent:
            own = self._shingles[key]
            for other in self._lsh.query(self._signatures[key]):
                if other < key and other in parent and jaccard(own, self._shingles[other]) >= self.threshold:
                    low, high = sorted((root(key), root(other)))
                    parent[high] = low
        return {key: root(key) for key in parent}

    def _signature(self, text: str, known: Mapping[str, Sequence[int]]) -> MinHash:
        signature = self._empty.copy()  # drawing its permutations is expensive
        if text in known:
            signature.hashvalues = np.array(known[text], dtype=signature.hashvalues.dtype)
        else:
            _sign(signature, text)
        return signature


def signatures(texts: Iterable[str]) -> Iterator[list[int]]:
    """The MinHash signature of each problem (120 integers below 2^32), for ``ProblemIndex``."""
    empty = _empty_signature()
    for text in texts:
        signature = empty.copy()
        _sign(signature, text)
        yield signature.hashvalues.tolist()


def _empty_signature() -> MinHash:
    return MinHash(num_perm=_PERMUTATIONS, seed=1, hashfunc=zlib.crc32)


def _sign(signature: MinHash, text: str) -> None:
    signature.update_batch([piece.encode() for piece in shingles(text)])


@dataclass(frozen=True, slots=True)
class BenchmarkText:
    """One benchmark item as text; ``benchmark`` is, for example, ``processbench/gsm8k``."""

    benchmark: str
    id: str
    problem: str
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProblemHit:
    """A training problem that a benchmark contains; ``kind`` is exact (equal when normalised) or near."""

    problem_id: str
    benchmark: str
    benchmark_id: str
    kind: str
    similarity: float


def problem_hits(index: ProblemIndex, items: Sequence[BenchmarkText]) -> list[ProblemHit]:
    """Every (training problem, benchmark item) pair that is exact or near, in the order of the items."""
    exact = {normalise(problem): key for key, problem in sorted(index.problems.items())}
    hits, seen = [], dict[str, list[tuple[str, str, float]]]()
    for item in items:
        text = normalise(item.problem)
        if text not in seen:
            equal = exact.get(text)
            near = [(key, "near", value) for key, value in index.near_duplicates(item.problem) if key != equal]
            seen[text] = ([(equal, "exact", 1.0)] if equal is not None else []) + near
        hits += [ProblemHit(key, item.benchmark, item.id, kind, value) for key, kind, value in seen[text]]
    return hits


@dataclass(frozen=True, slots=True, order=True)
class StepMatch:
    """A training step that matches a benchmark step; the greater of two matches is the better one.

    ``digest`` is the first 16 hexadecimal digits of the sha256 of the normalised training step.
    """

    is_exact: bool
    similarity: float
    digest: str

    @property
    def kind(self) -> str:
        """``exact`` or ``near``."""
        return "exact" if self.is_exact else "near"


class StepIndex:
    """The steps of ``items``, distinct when normalised, searched for matches with training steps."""

    def __init__(self, items: Sequence[BenchmarkText], threshold: float) -> None:
        self.benchmarks = Counter(item.benchmark for item in items)
        self.texts: dict[str, int] = {}
        self.occurrences = [
            (item, place, self.texts.setdefault(normalise(step), len(self.texts)))
            for item in items
            for place, step in enumerate(item.steps)
        ]
        """Every step of every item: the item, the place of the step from 0, its number among the distinct texts."""
        self._near = NearDuplicates(list(self.texts), threshold, SHORT)
        self.is_short = self._near.is_short

    def match(self, training: pl.Series) -> dict[str, dict[int, StepMatch]]:
        """The matches of each training text that has any, by the number of the benchmark step."""
        found: dict[str, dict[int, StepMatch]] = {}
        distinct = training.unique(maintain_order=True)
        for start in range(0, len(distinct), _CHUNK):
            normal = {text: normalise(text) for text in distinct.slice(start, _CHUNK)}
            texts = list(dict.fromkeys(normal.values()))
            matches = {
                text: {self.texts[text]: StepMatch(True, 1.0, text_digest(text))}
                for text in texts
                if text in self.texts
            }
            for place, number, similarity in self._near.pairs(texts):
                text = texts[place]
                matches.setdefault(text, {}).setdefault(number, StepMatch(False, similarity, text_digest(text)))
            found |= {original: matches[text] for original, text in normal.items() if text in matches}
        return found


def best_of(matches: Iterable[Mapping[int, StepMatch]]) -> dict[int, StepMatch]:
    """The best match of each benchmark step over several texts or parts of the training data."""
    best: dict[int, StepMatch] = {}
    for part in matches:
        for number, match in part.items():
            if number not in best or match > best[number]:
                best[number] = match
    return best


def overlap_counts(
    hits: Iterable[ProblemHit], index: StepIndex, matches: Mapping[int, StepMatch]
) -> dict[str, dict[str, int]]:
    """Per benchmark, the ``COUNTS`` of its items and steps whose problem or text the training data contain.

    An item that is both exact and near counts as exact. ``exact_short_steps`` is a part of ``exact_steps``.
    """
    counts = {benchmark: dict.fromkeys(COUNTS, 0) for benchmark in index.benchmarks}
    exact: dict[tuple[str, str], bool] = {}
    for hit in hits:
        item = hit.benchmark, hit.benchmark_id
        exact[item] = exact.get(item, False) or hit.kind == "exact"
    for (benchmark, _), is_exact in exact.items():
        counts[benchmark]["exact_problems" if is_exact else "near_problems"] += 1
    for text, _, number in index.occurrences:
        if match := matches.get(number):
            counts[text.benchmark][f"{match.kind}_steps"] += 1
            counts[text.benchmark]["exact_short_steps"] += match.is_exact and index.is_short[number]
    return counts
