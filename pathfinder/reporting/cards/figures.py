"""The figures of a model card: one run's results per benchmark and decision rule, each with its place in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pathfinder.pages.origins import origin_of
from pathfinder.reporting.names import PRMBENCH, PROCESSBENCH, SEARCH, Benchmark
from pathfinder.reporting.results import Results

Form = TypeVar("Form")
TOY = " (toy: generated stories)"
DATASETS = {PROCESSBENCH: "ProcessBench", PRMBENCH: "PRMBench", SEARCH: "search problems"}
_RULES = {"both": "labels, then reward", "pass1": "labels only", "official": "as published"}
"""The names of the decision rules by their key in metric files; the card explains them."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One result in percent. ``part`` is a subset or category, or empty; ``place`` is ``file#pointer``.

    ``kind`` is the metric's identifier and ``rule`` the decision rule in words.
    """

    benchmark: Benchmark
    part: str
    kind: str
    name: str
    rule: str
    value: float
    place: str


def figures_of(results: Results, run: str) -> list[Figure]:
    """The figures of a run, benchmark by benchmark; those that were not measured are left out."""
    found = [*_on_processbench(results, run), *_on_prmbench(results, run), *_on_search(results, run)]
    return sorted(found, key=lambda figure: (list(DATASETS).index(figure.benchmark), figure.part))


def _on_processbench(results: Results, run: str) -> Iterator[Figure]:
    if run in results.processbench:
        for words, metrics in _by_rule(results.processbench[run].rules):
            yield from _one(metrics.mean_f1, PROCESSBENCH, "", "f1", "mean F1", words)
            for name, subset in metrics.subsets.items():
                yield from _one(subset.f1, PROCESSBENCH, name, "f1", "F1", words)


def _on_prmbench(results: Results, run: str) -> Iterator[Figure]:
    if run in results.prmbench:
        for words, metrics in _by_rule(results.prmbench[run].rules):
            for part, value in {"": metrics.overall, **metrics.categories}.items():
                yield from _one(value, PRMBENCH, part, "prmscore", "PRMScore", words)


def _on_search(results: Results, run: str) -> Iterator[Figure]:
    if run in results.search:
        found = results.search[run]
        words = "guided search, highest reward per step"
        yield from _one(found.average, SEARCH, "", "accuracy", "accuracy", words)
        if best := found.best_of_n:
            words = f"best of {best.n} whole solutions by the minimum reward"
            yield from _one(best.average.get("min"), SEARCH, "", "accuracy", "accuracy", words)


def _by_rule(rules: Mapping[str, Form]) -> Iterator[tuple[str, Form]]:
    return ((words, rules[rule]) for rule, words in _RULES.items() if rule in rules)


def _one(value: float | None, benchmark: Benchmark, part: str, kind: str, name: str, rule: str) -> Iterator[Figure]:
    """A figure if there is a value; its place is the place of the value in its metric file."""
    origin = origin_of(value)
    if value is not None and origin is not None:
        yield Figure(benchmark, part, kind, name, rule, float(value), origin.of[0])
