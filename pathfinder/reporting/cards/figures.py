"""The figures of a model card: one run's results per benchmark and decision rule, each with its place in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pathfinder.pages.origins import origin_of
from pathfinder.reporting.names import PRMBENCH, PROCESSBENCH, SEARCH, Benchmark
from pathfinder.reporting.results import Results

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
    rules = results.benchmarks[PROCESSBENCH].get(run, {}).get("rules", {})
    for rule, words in _RULES.items():
        metrics = rules.get(rule, {})
        yield from _one(metrics.get("mean_f1"), PROCESSBENCH, "", "f1", "mean F1", words)
        for subset, values in metrics.get("subsets", {}).items():
            yield from _one(values["f1"], PROCESSBENCH, subset, "f1", "F1", words)


def _on_prmbench(results: Results, run: str) -> Iterator[Figure]:
    rules = results.benchmarks[PRMBENCH].get(run, {}).get("rules", {})
    for rule, words in _RULES.items():
        metrics = rules.get(rule, {})
        yield from _one(metrics.get("overall"), PRMBENCH, "", "prmscore", "PRMScore", words)
        for category, value in metrics.get("categories", {}).items():
            yield from _one(value, PRMBENCH, category, "prmscore", "PRMScore", words)


def _on_search(results: Results, run: str) -> Iterator[Figure]:
    metrics = results.benchmarks[SEARCH].get(run, {})
    yield from _one(
        metrics.get("average"), SEARCH, "", "accuracy", "accuracy", "guided search, highest reward per step"
    )
    best: Mapping[str, Any] = metrics.get("best_of_n", {})
    words = f"best of {best.get('n')} whole solutions by the minimum reward"
    yield from _one(best.get("average", {}).get("min"), SEARCH, "", "accuracy", "accuracy", words)


def _one(value: Any, benchmark: Benchmark, part: str, kind: str, name: str, rule: str) -> Iterator[Figure]:
    """A figure if there is a value; its place is that of the value in its metric file."""
    origin = origin_of(value)
    if value is not None and origin is not None:
        yield Figure(benchmark, part, kind, name, rule, float(value), origin.of[0])
