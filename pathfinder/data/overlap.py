"""Overlap between training data and benchmarks: problems and steps that are equal or near duplicates.

Two texts are near duplicates if the Jaccard similarity of their word 3-shingles reaches a threshold
(``pathfinder.data.near_duplicates``). Steps are compared with the benchmarks, problems also with each other.

A step of fewer than ``SHORT`` words and signs ("So x = 2.") may be equal by chance. It has no near duplicates, and its
exact matches are counted separately.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ground.io import text_digest
from ground.text import normalise
from pathfinder.data.near_duplicates import NearDuplicates

SHORT = 10
COUNTS = ("exact_problems", "near_problems", "exact_steps", "exact_short_steps", "near_steps")
_CHUNK = 50_000


class ProblemIndex:
    """Problems by id, searched for near duplicates."""

    def __init__(self, problems: Mapping[str, str], threshold: float) -> None:
        self.keys = sorted(problems)
        self._texts = [normalise(problems[key]) for key in self.keys]
        self._near = NearDuplicates(self._texts, threshold)
        self.by_text = dict(zip(self._texts, self.keys, strict=True))

    def near_duplicates(self, texts: Sequence[str]) -> Iterator[list[tuple[str, float]]]:
        """For each normalised text, ``(id, similarity)`` of every near duplicate, the most similar first."""
        found: dict[int, list[tuple[str, float]]] = defaultdict(list)
        for place, number, similarity in self._near.pairs(texts):
            found[place].append((self.keys[number], similarity))
        return (sorted(found[place], key=lambda hit: (-hit[1], hit[0])) for place in range(len(texts)))

    def groups(self, keys: Iterable[str]) -> dict[str, str]:
        """The group of each problem. Near duplicates share a group, named by its smallest id (union-find)."""
        parent = {key: key for key in keys}

        def root(key: str) -> str:
            while parent[key] != key:
                parent[key] = parent[parent[key]]
                key = parent[key]
            return key

        for place, number, _ in self._near.pairs(self._texts):
            if self.keys[place] in parent and self.keys[number] in parent:
                low, high = sorted((root(self.keys[place]), root(self.keys[number])))
                parent[high] = low
        return {key: root(key) for key in parent}


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
    texts = [normalise(item.problem) for item in items]
    distinct = list(dict.fromkeys(texts))
    found: dict[str, list[tuple[str, str, float]]] = {}
    for text, near in zip(distinct, index.near_duplicates(distinct), strict=True):
        equal = index.by_text.get(text)
        exact = [] if equal is None else [(equal, "exact", 1.0)]
        found[text] = exact + [(key, "near", value) for key, value in near if key != equal]
    return [
        ProblemHit(key, item.benchmark, item.id, kind, value)
        for item, text in zip(items, texts, strict=True)
        for key, kind, value in found[text]
    ]


@dataclass(frozen=True, slots=True, order=True)
class StepMatch:
    """A training step that matches a benchmark step; of two matches, the greater is better.

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
        """The matches of each training text with matches, by the number of the benchmark step."""
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
    """For each benchmark, the ``COUNTS`` of its items and steps whose problem or text the training data contain.

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
