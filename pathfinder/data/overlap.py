"""Overlap between training data and benchmarks: equal and nearly equal problems, equal and nearly equal steps.

Two texts are near when the Jaccard similarity of their word 3-shingles reaches a threshold. Problems are few and are
compared with each other, too: MinHash signatures find the candidates (datasketch's LSH), the exact similarity decides.
Steps are many and compared with the benchmarks' alone: ``pathfinder.data.near`` finds every near pair.

A step of fewer than ``SHORT`` words and signs ("So x = 2.") says too little to be near another: it counts only where it
is equal, and is counted apart, for it may be equal by chance.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from datasketch import MinHash, MinHashLSH

from pathfinder.core.prompts import digest
from pathfinder.core.records import normalise
from pathfinder.data.near import SHINGLE, WORD, NearTexts

SHORT = 10
Figures = Mapping[str, Mapping[str, int]]
_BANDS, _ROWS = 20, 6
"""LSH bands and rows: a pair of similarity 0.8 becomes a candidate with probability 0.998, one of 0.3 with 0.014."""
_PERMUTATIONS = _BANDS * _ROWS
_CHUNK = 50_000
_WORD = re.compile(WORD)


def shingles(text: str) -> frozenset[str]:
    """Runs of three words or signs of the normalised text; the whole text where it is shorter."""
    words = _WORD.findall(normalise(text))
    if len(words) <= SHINGLE:
        return frozenset([" ".join(words)])
    return frozenset(" ".join(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1))


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Size of the intersection over size of the union."""
    union = len(left | right)
    return len(left & right) / union if union else 1.0


class NearIndex:
    """Problems by id, asked for those near another text."""

    def __init__(self, problems: Mapping[str, str], threshold: float) -> None:
        self.problems, self.threshold = problems, threshold
        self._lsh = MinHashLSH(num_perm=_PERMUTATIONS, params=(_BANDS, _ROWS))
        self._empty = MinHash(num_perm=_PERMUTATIONS, seed=1, hashfunc=zlib.crc32)
        self._pieces: dict[str, frozenset[str]] = {}
        self._signatures: dict[str, MinHash] = {}
        for key in sorted(problems):
            self._pieces[key] = pieces = shingles(problems[key])
            self._signatures[key] = signature = self._signature(pieces)
            self._lsh.insert(key, signature)

    def near(self, text: str) -> list[tuple[str, float]]:
        """``(id, similarity)`` of every problem that reaches the threshold, the nearest first."""
        pieces = shingles(text)
        return self._checked(pieces, self._lsh.query(self._signature(pieces)))

    def groups(self, keys: Iterable[str]) -> dict[str, str]:
        """The group of each of these problems: near ones share one, named by its smallest id (union-find)."""
        parent = {key: key for key in keys}

        def root(key: str) -> str:
            while parent[key] != key:
                parent[key] = parent[parent[key]]
                key = parent[key]
            return key

        for key in parent:
            others = [other for other in self._lsh.query(self._signatures[key]) if other < key and other in parent]
            for other, _ in self._checked(self._pieces[key], others):
                low, high = sorted((root(key), root(other)))
                parent[high] = low
        return {key: root(key) for key in parent}

    def _checked(self, pieces: frozenset[str], candidates: Iterable[str]) -> list[tuple[str, float]]:
        found = [(key, jaccard(pieces, self._pieces[key])) for key in candidates]
        return sorted((hit for hit in found if hit[1] >= self.threshold), key=lambda hit: (-hit[1], hit[0]))

    def _signature(self, pieces: frozenset[str]) -> MinHash:
        signature = self._empty.copy()  # its permutations are costly to draw
        signature.update_batch([piece.encode() for piece in pieces])
        return signature


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


def problem_hits(index: NearIndex, items: Sequence[BenchmarkText]) -> list[Hit]:
    """Every (training problem, benchmark item) pair that is exact or near, in the items' order."""
    exact = {normalise(problem): key for key, problem in sorted(index.problems.items())}
    hits, seen = [], dict[str, list[tuple[str, str, float]]]()
    for item in items:
        text = normalise(item.problem)
        if text not in seen:
            same = exact.get(text)
            near = [(key, "near", value) for key, value in index.near(item.problem) if key != same]
            seen[text] = ([(same, "exact", 1.0)] if same is not None else []) + near
        hits += [Hit(key, item.benchmark, item.id, kind, value) for key, kind, value in seen[text]]
    return hits


@dataclass(frozen=True, slots=True)
class StepMatch:
    """The training step that is nearest to a benchmark's: ``digest`` is the first 16 hexadecimal digits of the sha256
    of its normalised text, ``kind`` is exact or near. The higher of two matches is the better one."""

    is_exact: bool
    similarity: float
    digest: str

    @property
    def kind(self) -> str:
        """As in the tables."""
        return "exact" if self.is_exact else "near"

    def rank(self) -> tuple[bool, float, str]:
        """Sorts the better match last, whatever the order in which they were found."""
        return self.is_exact, self.similarity, self.digest


class StepIndex:
    """The steps of ``items``, distinct when normalised, asked for their matches among training steps."""

    def __init__(self, items: Sequence[BenchmarkText], threshold: float) -> None:
        self.texts: dict[str, int] = {}
        self.occurrences = [
            (item, place, self.texts.setdefault(normalise(step), len(self.texts)))
            for item in items
            for place, step in enumerate(item.steps)
        ]
        """Every step of every item: the item, the step's place from 0, its number among the distinct texts."""
        self._near = NearTexts(list(self.texts), threshold, SHORT)
        self.is_short: list[bool] = self._near.is_short.tolist()

    def match(self, training: pl.Series) -> dict[str, dict[int, StepMatch]]:
        """For each training text near or equal to benchmark steps: these steps. Equal texts are asked about once."""
        found: dict[str, dict[int, StepMatch]] = {}
        every = training.unique(maintain_order=True)
        for start in range(0, len(every), _CHUNK):
            normal = {text: normalise(text) for text in every.slice(start, _CHUNK)}
            distinct = list(dict.fromkeys(normal.values()))
            held = {
                text: {self.texts[text]: StepMatch(True, 1.0, digest(text))} for text in distinct if text in self.texts
            }
            for asked, number, similarity in self._near.ask(distinct):
                text = distinct[asked]
                held.setdefault(text, {}).setdefault(number, StepMatch(False, similarity, digest(text)))
            found |= {text: held[same] for text, same in normal.items() if same in held}
        return found


def best_of(matches: Iterable[Mapping[int, StepMatch]]) -> dict[int, StepMatch]:
    """The best match of each benchmark step over several texts or parts of the training data."""
    best: dict[int, StepMatch] = {}
    for part in matches:
        for number, match in part.items():
            if number not in best or match.rank() > best[number].rank():
                best[number] = match
    return best


def step_figures(index: StepIndex, matches: Mapping[int, StepMatch]) -> dict[str, dict[str, int]]:
    """For each benchmark with steps: how many stand in the training data, equal (of these, short ones) or near."""
    figures: dict[str, dict[str, int]] = {}
    for item, _, number in index.occurrences:
        found = figures.setdefault(item.benchmark, dict.fromkeys(STEP_FIGURES, 0))
        if match := matches.get(number):
            found[f"{match.kind}_steps"] += 1
            found["exact_short_steps"] += match.is_exact and index.is_short[number]
    return figures


STEP_FIGURES = ("exact_steps", "exact_short_steps", "near_steps")


def problem_figures(hits: Iterable[Hit]) -> dict[str, dict[str, int]]:
    """For each benchmark that is hit: items whose problem stands in the training data, equal or else near."""
    kinds: dict[tuple[str, str], str] = {}
    for hit in hits:
        key = hit.benchmark, hit.benchmark_id
        kinds[key] = "exact" if "exact" in (hit.kind, kinds.get(key)) else "near"
    figures: dict[str, dict[str, int]] = {}
    for (benchmark, _), kind in kinds.items():
        figures.setdefault(benchmark, dict.fromkeys(PROBLEM_FIGURES, 0))[f"{kind}_problems"] += 1
    return figures


PROBLEM_FIGURES = ("exact_problems", "near_problems")


def counts(problems: Figures, steps: Figures, benchmark: str) -> dict[str, int]:
    """One benchmark's row of both kinds of figures."""
    return {
        **dict.fromkeys((*PROBLEM_FIGURES, *STEP_FIGURES), 0),
        **problems.get(benchmark, {}),
        **steps.get(benchmark, {}),
    }
