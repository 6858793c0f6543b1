"""Figures of metric files as table cells: looked up by column, averaged over seeds, and printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from pathfinder.core.metrics import Measured
from pathfinder.core.runs import Run
from pathfinder.data.metrics import Rate
from pathfinder.pages.origins import Sourced, joined, origin_of
from pathfinder.pages.page import Block, Figure, Fold, Table
from pathfinder.reporting.names import BENCHMARKS, NOT_APPLICABLE, Benchmark
from pathfinder.reporting.origins import MEAN, SUM, made, said
from pathfinder.reporting.results import Cell, Results, Score, View

Form = TypeVar("Form")


def figures(values: Iterable[float | None], form: str = ".1f") -> list[str]:
    """Figures in a format, by default to one decimal place, with their origins; a dash for ``None``."""
    return [NOT_APPLICABLE if value is None else Sourced(f"{value:{form}}", origin_of(value)) for value in values]


def chart(svg: str, words: Iterable[str], values: Iterable[object], caption: str, lead: str = "") -> Figure:
    """A drawing with its content in one sentence after ``lead``, which has the origins of ``values``."""
    return Figure(svg, said(f"{lead}{'; '.join(words)}.", values), caption)


def printed(cell: Cell) -> str:
    """A score with its interval and its origins; a word as it is."""
    if isinstance(cell, str):
        return cell
    origin = origin_of(cell.value)
    how = origin.how if origin else ""
    return Sourced(str(cell), joined(how, [cell.value], [cell.low, cell.high]))


def percent(rate: Rate) -> str:
    """A rate; a dash if nothing was counted."""
    if rate.value is None or rate.interval is None:
        return NOT_APPLICABLE
    return printed(Score(rate.value, *rate.interval))


def seeds(members: Sequence[Run], metrics: Mapping[str, Form]) -> list[Form]:
    """The metrics of a system's measured runs."""
    return [metrics[run.name] for run in members if run.name in metrics]


def scores_of(members: Sequence[Run], metrics: Mapping[str, Measured], columns: Iterable[str]) -> list[float | None]:
    """A system's score in each column, the mean over its measured seeds."""
    found = seeds(members, metrics)
    return [mean(each.score(column) for each in found) for column in columns]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean with the origins of the values; ``None`` without a value, or if one of them is undefined."""
    given = [*values]
    found = [value for value in given if value is not None]
    if len(found) < max(len(given), 1):
        return None
    value: float = made(MEAN, sum(found) / len(found), found) if len(found) > 1 else found[0]
    return value


def folded(summary: str, caption: str, headers: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[Block]:
    """A collapsed table, or nothing if it has no rows."""
    return [Fold(summary, [Table(caption, headers, rows)])] if rows else []


def measured(results: Results, benchmark: Benchmark) -> list[list[Run]]:
    """The runs of each system that have metrics on the benchmark; systems without one are left out."""
    found = results.benchmarks[benchmark]
    return [there for members in results.systems if (there := [run for run in members if run.name in found])]


def scale_points(results: Results, view: View | None = None) -> list[tuple[Run, int, int, list[float | None]]]:
    """Each measured mix of the full variant, smallest first: a run, training records, Monte-Carlo records, scores.

    The scores are the main figures of ``BENCHMARKS``, each the mean over seeds.
    """
    points, found = [], {bench: results.read(bench, view) for bench in BENCHMARKS}
    for members in results.systems:
        train = next((results.train[run.name] for run in members if run.name in results.train), None)
        if members[0].variant == "full" and train is not None:
            sources = train.sources
            records = made(SUM, sum(sources.values()), sources.values())
            others = [count for name, count in sources.items() if name != "prm800k"]
            scores = [mean(each.headline for each in seeds(members, found[bench])) for bench in BENCHMARKS]
            points.append((members[0], records, made(SUM, sum(others), others or [records]), scores))
    return sorted(points, key=lambda point: point[1])
