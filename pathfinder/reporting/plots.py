"""The report's drawings: the systems side by side, score against data, and how good the rewards are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pathfinder.benchmarks import paper
from pathfinder.pages.page import Block, Figure, Table, Text
from pathfinder.pages.svg import Bar, dot_chart, interval_chart, line_chart, scatter_chart
from pathfinder.reporting.calibration import Rewards, area, bins, brier, calibration_error, roc, thinned
from pathfinder.reporting.results import MISSING, Line, Results, Score, name_of
from pathfinder.reporting.tables import scale_points

BENCHMARKS = ("ProcessBench mean F1", "PRMScore", "search accuracy")
# The paper spells some systems differently from table to table.
_SAME = {
    "Lemma-PRM800k-7B": "Llemma-PRM800K-7B",
    "RLHFlow-PRM-Mistral-8B": "RLHFlow-Mistral-8B",
    "RLHFlow-PRM-DeepSeek-8B": "RLHFlow-DeepSeek-8B",
}
_SIZE = re.compile(r"~?([\d.]+)([KM])")
_FEWEST = 10  # steps of a drawn part of the range; fewer say little
Curve = list[tuple[float, float]]
_DIAGONAL: Curve = [(0.0, 0.0), (1.0, 1.0)]


def bars_of(table: Sequence[Line]) -> dict[str, list[Bar]]:
    """Each benchmark's systems that were measured."""
    return {
        name: [
            Bar(line.name, cell.value, cell.low, cell.high, line.is_baseline)
            for line in table
            if isinstance(cell := line.cells[place], Score)
        ]
        for place, name in enumerate(BENCHMARKS)
    }


def performance(table: Sequence[Line]) -> list[Block]:
    """One drawing a benchmark: every system with its interval."""
    drawn: list[Block] = []
    for name, bars in bars_of(table).items():
        said = "; ".join(f"{bar.name} {bar.value:.1f} [{bar.low:.1f}, {bar.high:.1f}]" for bar in bars)
        if bars:
            drawn.append(Figure(interval_chart(bars, "percent"), f"{name}: {said}.", f"{name}; hollow: baselines."))
    return drawn


def paper_performance(table: Sequence[Line], is_comparable: bool) -> Figure:
    """The paper's figure "Performance comparison": its PRMs on the three benchmarks; ours where they are comparable."""
    rows: dict[str, dict[str, float]] = {}
    for benchmark, printed in zip(BENCHMARKS, (paper.PROCESSBENCH, paper.PRMBENCH, paper.SEARCH), strict=True):
        for row in printed.rows:
            if "7B" in row.name or "8B" in row.name:
                rows.setdefault(_SAME.get(row.name, row.name), {})[benchmark] = row.values[-1]
    shown = {name: row for name, row in rows.items() if " w/o " not in name}
    if is_comparable:
        for name, bars in bars_of(table).items():
            for bar in bars:
                if not bar.is_baseline:
                    shown.setdefault(f"ours: {bar.name}", {})[name] = bar.value
    said = "; ".join(f"{name}: " + ", ".join(f"{b} {v:.1f}" for b, v in row.items()) for name, row in shown.items())
    caption = "Performance comparison (the paper's figure, from its tables" + (
        ", with ours)." if is_comparable else ")."
    )
    return Figure(dot_chart(shown, "percent"), f"{caption} {said}.", caption)


def paper_scale(results: Results, is_comparable: bool) -> Figure:
    """The paper's figure "PRMScore against data scale"; ours where they are comparable."""
    sizes = {row.name: size for row in paper.PROCESSBENCH.rows if (size := _size(row.samples))}
    scores = {_SAME.get(row.name, row.name): row.values[-1] for row in paper.PRMBENCH.rows}
    others = [(size, scores[name], name) for name, size in sizes.items() if name in scores and "PathFinder" not in name]
    theirs = [(_size(row.samples) or 1.0, row.values[1], f"{row.name} {row.samples}") for row in paper.SCALE]
    series = {"other PRMs": others, "the paper's PathFinder-PRM": theirs}
    if is_comparable:
        points = [(float(n), values[1], name_of(run)) for run, n, _, values in scale_points(results) if values[1]]
        series |= {"ours": points} if points else {}
    said = "; ".join(f"{name} {x:,.0f} samples {y:.1f}" for line in series.values() for x, y, name in line)
    caption = "PRMScore against training samples (the paper's figure, from its tables" + (
        ", with ours)." if is_comparable else ")."
    )
    return Figure(scatter_chart(series, "training samples", "PRMScore"), f"{caption} {said}.", caption)


def our_scale(results: Results, table: Sequence[Line]) -> list[Block]:
    """Our three scores against the training records of each mix; nothing where there is one mix."""
    points = scale_points(results)
    cells = {line.name: line.cells for line in table}
    spans = {
        name: [
            (float(records), cell.low, cell.high)
            for run, records, _, _ in points
            if isinstance(cell := cells[name_of(run)][place], Score)
        ]
        for place, name in enumerate(BENCHMARKS)
    }
    series: dict[str, Curve] = {
        name: [(float(records), value) for _, records, _, values in points if (value := values[place]) is not None]
        for place, name in enumerate(BENCHMARKS)
    }
    if len(points) < 2:
        return []
    said = "; ".join(f"{n}: " + ", ".join(f"{y:.1f} at {x:,.0f}" for x, y in line) for n, line in series.items())
    caption = (
        "Our scores against training records: the human ratings alone, then with more and more Monte-Carlo records."
    )
    return [Figure(line_chart(series, "training records", "percent", spans), f"{caption} {said}.", caption)]


def reward_quality(benchmark: str, found: Mapping[str, Rewards]) -> list[Block]:
    """ROC and calibration curves of each system's rewards, with area, calibration error and Brier score."""
    ranked = {name: rewards for name, rewards in found.items() if rewards.has_both}
    if not ranked:
        return [Text(f"{MISSING}: no rewards of {benchmark} with sound and wrong steps.")]
    curves = {name: roc(rewards) for name, rewards in ranked.items()}
    calibrated = {name: bins(rewards) for name, rewards in ranked.items()}
    rows = [
        (
            name,
            f"{len(rewards.values):,}",
            f"{100 * float(rewards.sound.mean()):.1f}",
            f"{area(curves[name]):.3f}",
            f"{calibration_error(calibrated[name]):.3f}",
            f"{brier(rewards):.3f}",
        )
        for name, rewards in ranked.items()
    ]
    areas = "; ".join(f"{row[0]}: area {row[3]}" for row in rows)
    gaps = "; ".join(
        f"{name}: " + ", ".join(f"{one.reward:.2f} is {one.sound:.2f}" for one in parts)
        for name, parts in calibrated.items()
    )
    drawn: dict[str, Curve] = {name: thinned(curve) for name, curve in curves.items()}
    lines: dict[str, Curve] = {
        name: [(one.reward, one.sound) for one in parts if one.count >= _FEWEST] for name, parts in calibrated.items()
    }
    return [
        Figure(
            line_chart(
                drawn | {"chance": _DIAGONAL}, "wrong steps called sound", "sound steps called sound", guide="chance"
            ),
            f"ROC of the reward on {benchmark}. {areas}.",
            f"ROC of the reward, steps of {benchmark}.",
        ),
        Figure(
            line_chart(
                lines | {"calibrated": _DIAGONAL},
                "mean reward of the steps",
                "share of them that is sound",
                guide="calibrated",
            ),
            f"Calibration of the reward on {benchmark}: mean reward and share of sound steps. {gaps}.",
            f"Calibration of the reward, steps of {benchmark}: parts of its range with at least {_FEWEST} steps.",
        ),
        Table(
            f"The reward on the steps of {benchmark}.",
            ("system", "steps", "sound, %", "area under ROC", "calibration error", "Brier score"),
            rows,
            origin=f"artifacts/predictions/{'prmbench' if benchmark == 'PRMBench' else 'processbench'}/full.jsonl",
        ),
    ]


def curves_of(found: Mapping[str, Rewards]) -> dict[str, list[dict[str, float | str]]]:
    """The same as rows for plotting tools: ``roc`` and ``calibration``, one row a point, named by system."""
    ranked = {name: rewards for name, rewards in found.items() if rewards.has_both}
    return {
        "roc": [{"system": n, "wrong": x, "sound": y} for n, r in ranked.items() for x, y in thinned(roc(r))],
        "calibration": [
            {"system": name, "reward": one.reward, "sound": one.sound, "steps": one.count}
            for name, rewards in ranked.items()
            for one in bins(rewards)
        ],
    }


def _size(text: str) -> float | None:
    """``~350K`` as a number."""
    found = _SIZE.fullmatch(text)
    return float(found[1]) * {"K": 1e3, "M": 1e6}[found[2]] if found else None
