"""Figures of metric files as table cells: looked up by column, averaged over seeds, and printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathfinder.core.runs import Run
from pathfinder.reporting.results import BENCHMARKS, NOT_APPLICABLE, Benchmark, Metrics, Results, Score

Value = Callable[[Metrics, str], Any]
"""Looks up a figure of a metric file by the name of its column."""


def figures(values: Sequence[Any]) -> list[str]:
    """Figures to one decimal place, a dash for ``None``."""
    return [NOT_APPLICABLE if value is None else f"{value:.1f}" for value in values]


def counts(values: Sequence[int | None]) -> list[str]:
    """Counts with thousands separators, a dash for ``None``."""
    return [NOT_APPLICABLE if value is None else f"{value:,}" for value in values]


def percent(figure: Metrics) -> str:
    """A figure of the form ``{"value", "interval"}``; a dash if nothing was counted."""
    return NOT_APPLICABLE if figure["value"] is None else str(Score(figure["value"], *figure["interval"]))


def gaps(ours: Sequence[float | None], theirs: Sequence[float]) -> list[str]:
    """Our figures minus the paper's."""
    pairs = zip(ours, theirs, strict=True)
    return [NOT_APPLICABLE if value is None else f"{value - printed:+.1f}" for value, printed in pairs]


def row_of(
    members: Sequence[Run], metrics: Mapping[str, Metrics], value_of: Value, columns: Sequence[str]
) -> list[float | None]:
    """A system's figures, each the mean over its measured seeds; ``None`` if no file has it."""
    files = [metrics[run.name] for run in members if run.name in metrics]
    found = ([value for file in files if (value := value_of(file, column)) is not None] for column in columns)
    return [sum(values) / len(values) if values else None for values in found]


def mean_of(members: Sequence[Run], metrics: Mapping[str, Metrics], *keys: str) -> float | None:
    """The mean of a nested figure over a system's measured seeds."""
    return row_of(members, metrics, lambda file, _: nested(file, *keys), [""])[0]


def nested(found: Any, *keys: str) -> Any:
    """The value below ``keys``, or ``None``."""
    for key in keys:
        found = (found or {}).get(key)
    return found


def subset(found: Metrics, column: str) -> Any:
    """F1 of a ProcessBench subset, or the mean."""
    return found["mean_f1"] if column == "mean_f1" else nested(found, "subsets", column, "f1")


def class_or_category(found: Metrics, column: str) -> Any:
    """PRMScore of a PRMBench class or category, or the overall one."""
    if column == "overall":
        return found["overall"]
    return found["classes"].get(column, found["categories"].get(column))


def search_set(found: Metrics, column: str) -> Any:
    """Accuracy on a search set, or the average."""
    if column == "average":
        return found["average"]
    figures = found["sets"].get(column, {})
    return next((value for key, value in figures.items() if key != "n"), None)


def origin_of(results: Results, benchmark: Benchmark) -> str:
    """The metric file of the first measured run; the other runs' files are in the same folder."""
    folder = f"metrics/{benchmark.key}"
    return f"{folder}/{first}.json" if (first := next(iter(results.benchmarks[benchmark]), None)) else folder


def measured(results: Results, benchmark: Benchmark) -> list[list[Run]]:
    """The runs of each system that has metrics on the benchmark."""
    found = results.benchmarks[benchmark]
    return [members for members in results.systems.values() if any(run.name in found for run in members)]


def scale_points(results: Results) -> list[tuple[Run, int, int, list[float | None]]]:
    """Each measured mix of the full variant, smallest first: a run, training records, Monte-Carlo records, scores.

    The scores are the main figures of ``BENCHMARKS``, each the mean over seeds.
    """
    points = []
    for members in results.systems.values():
        train = next((results.train[run.name] for run in members if run.name in results.train), None)
        if members[0].variant == "full" and train is not None and "sources" in train:
            records = sum(train["sources"].values())
            scores = [mean_of(members, results.benchmarks[bench], bench.figure) for bench in BENCHMARKS]
            points.append((members[0], records, records - train["sources"].get("prm800k", 0), scores))
    return sorted(points, key=lambda point: point[1])
