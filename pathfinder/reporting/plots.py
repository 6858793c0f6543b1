"""The report's charts: systems with intervals, score against data, and the quality of rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pathfinder.pages.origins import Sourced
from pathfinder.pages.page import Block, Figure, Table
from pathfinder.pages.svg import Bar, interval_chart, line_chart
from pathfinder.reporting.calibration import FEWEST, Rewards, area, bins, brier, calibration_error, roc, thinned
from pathfinder.reporting.cells import scale_points
from pathfinder.reporting.names import BENCHMARKS, CAPTIONS, name_of
from pathfinder.reporting.origins import from_files, said
from pathfinder.reporting.results import Line, Results, Score

Curve = list[tuple[float, float]]
_DIAGONAL: Curve = [(0.0, 0.0), (1.0, 1.0)]


def bars_of(lines: Sequence[Line]) -> dict[str, list[Bar]]:
    """The measured systems of each benchmark, by its key."""
    return {
        bench.key: [
            Bar(line.name, cell.value, cell.low, cell.high, line.is_baseline)
            for line in lines
            if isinstance(cell := line.cells[place], Score)
        ]
        for place, bench in enumerate(BENCHMARKS)
    }


def performance(lines: Sequence[Line]) -> list[Block]:
    """One chart per benchmark: every system with its interval."""
    charts: list[Block] = []
    for bench, bars in zip(BENCHMARKS, bars_of(lines).values(), strict=True):
        words = "; ".join(f"{bar.name} {bar.value:.1f} [{bar.low:.1f}, {bar.high:.1f}]" for bar in bars)
        words = said(f"{words}.", [figure for bar in bars for figure in (bar.value, bar.low, bar.high)])
        caption = f"{bench.title[0].upper()}{bench.title[1:]} with 95 % intervals. Baselines are hollow."
        charts += [Figure(interval_chart(bars, "percent"), words, caption)] if bars else []
    return charts


def our_scale(results: Results, lines: Sequence[Line]) -> list[Block]:
    """Our main figures by the number of training records; empty with fewer than two mixes."""
    points = scale_points(results)
    if len(points) < 2:
        return []
    cells = {line.name: line.cells for line in lines}
    series: dict[str, Curve] = {}
    spans: dict[str, list[tuple[float, float, float]]] = {}
    for place, bench in enumerate(BENCHMARKS):
        for run, records, _, values in points:
            if (value := values[place]) is not None:
                series.setdefault(bench.title, []).append((float(records), value))
            if isinstance(cell := cells[name_of(run)][place], Score):
                spans.setdefault(bench.title, []).append((float(records), cell.low, cell.high))
    words = (f"{name}: " + ", ".join(f"{y:.1f} at {x:,.0f}" for x, y in line) for name, line in series.items())
    text = said(f"{'; '.join(words)}.", [y for line in series.values() for _, y in line])
    return [Figure(line_chart(series, "training records", "percent", spans), text, CAPTIONS["our_scale"])]


def reward_quality(benchmark: str, found: Mapping[str, Rewards]) -> list[Block]:
    """ROC and calibration curves of each system's scores, with area, calibration error and Brier score.

    Empty without rewards.
    """
    if not found:
        return []
    ranking: dict[str, Curve] = {}
    calibration: dict[str, Curve] = {}
    rows, gaps = [], []
    for name, rewards in found.items():
        curve, parts = roc(rewards), bins(rewards)
        source = from_files("statistic", rewards.files)
        texts = [f"{len(rewards.values):,}", f"{100 * float(rewards.correct.mean()):.1f}"]
        texts += [f"{figure:.3f}" for figure in (area(curve), calibration_error(parts), brier(rewards))]
        rows.append((name, *(Sourced(text, source.origin) for text in texts)))
        gaps.append(f"{name}: " + ", ".join(f"{part.correct:.2f} at {part.reward:.2f}" for part in parts))
        ranking[name] = thinned(curve)
        calibration[name] = [(part.reward, part.correct) for part in parts if part.count >= FEWEST]
    roc_axes = "share of incorrect steps accepted", "share of correct steps accepted"
    axes = "mean score of the steps", "share of correct steps"
    headers = ("system", "steps", "correct, %", "area under ROC", "calibration error", "Brier score")
    all_files = [from_files("statistics", rewards.files) for rewards in found.values()]
    return [
        Figure(
            line_chart(ranking | {"chance": _DIAGONAL}, *roc_axes, guide="chance"),
            said("; ".join(f"{row[0]}: area {row[3]}" for row in rows) + ".", all_files),
            f"ROC curve of the scores on the steps of {benchmark}: one point per threshold.",
        ),
        Figure(
            line_chart(calibration | {"calibrated": _DIAGONAL}, *axes, spans={}, guide="calibrated"),
            said(f"Share of correct steps by mean score. {'; '.join(gaps)}.", all_files),
            f"Calibration of the scores on the steps of {benchmark}: one point per tenth of the range with {FEWEST} "
            "steps or more.",
        ),
        Table(
            CAPTIONS["ranking"].format(benchmark=benchmark),
            headers,
            rows,
        ),
    ]
