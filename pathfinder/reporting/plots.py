"""The report's charts: systems with intervals, the paper's figures, score against data, and the quality of rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pathfinder.benchmarks import paper
from pathfinder.pages.origins import Sourced
from pathfinder.pages.page import Block, Figure, Table
from pathfinder.pages.svg import Bar, dot_chart, interval_chart, line_chart, scatter_chart
from pathfinder.reporting.calibration import FEWEST, Rewards, area, bins, brier, calibration_error, roc, thinned
from pathfinder.reporting.cells import mean, scale_points, seeds
from pathfinder.reporting.names import BENCHMARKS, name_of
from pathfinder.reporting.origins import from_files, of_paper, said
from pathfinder.reporting.results import Line, Results, Score, as_published

# Systems whose spelling differs between the paper's tables.
_SAME = {
    "Lemma-PRM800k-7B": "Llemma-PRM800K-7B",
    "RLHFlow-PRM-Mistral-8B": "RLHFlow-Mistral-8B",
    "RLHFlow-PRM-DeepSeek-8B": "RLHFlow-DeepSeek-8B",
}
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


def paper_performance(results: Results, is_comparable: bool) -> Figure:
    """The paper's figure "Performance comparison", with our systems under the published rules if comparable."""
    rows: dict[str, dict[str, float]] = {}
    for bench in BENCHMARKS:
        for place, row in enumerate(bench.table.rows):
            if ("7B" in row.name or "8B" in row.name) and " w/o " not in row.name:
                printed = of_paper(bench.table.label, place, row.values)
                rows.setdefault(_SAME.get(row.name, row.name), {})[bench.title] = printed[-1]
    for bench in BENCHMARKS if is_comparable else ():
        published = results.read(bench, as_published)
        for members in results.systems:
            if (value := mean(each.headline for each in seeds(members, published))) is not None:
                rows.setdefault(f"ours: {name_of(members[0])}", {})[bench.title] = value
    words = (f"{name}: " + ", ".join(f"{b} {value:.1f}" for b, value in row.items()) for name, row in rows.items())
    caption = _paper_caption("Performance comparison", is_comparable)
    figures = [value for row in rows.values() for value in row.values()]
    return Figure(dot_chart(rows, "percent"), said(f"{'; '.join(words)}.", figures), caption, is_comparable)


def paper_scale(results: Results, is_comparable: bool) -> Figure:
    """The paper's figure of PRMScore by data scale, with our systems under the published rules if comparable."""
    sizes = {row.name: size for row in paper.PROCESSBENCH.rows if (size := _size(row.samples))}
    scores = {
        _SAME.get(row.name, row.name): of_paper(paper.PRMBENCH.label, place, row.values)[-1]
        for place, row in enumerate(paper.PRMBENCH.rows)
    }
    others = [(size, scores[name], name) for name, size in sizes.items() if name in scores and "PathFinder" not in name]
    theirs = [
        (_size(row.samples) or 1.0, of_paper(paper.SCALE_LABEL, place, row.values)[1], f"{row.name} {row.samples}")
        for place, row in enumerate(paper.SCALE)
    ]
    series = {"other PRMs": others, "the paper's PathFinder-PRM": theirs}
    points = scale_points(results, as_published) if is_comparable else []
    if ours := [(float(n), values[1], name_of(run)) for run, n, _, values in points if values[1]]:
        series["ours"] = ours
    words = (f"{name} {x:,.0f} samples {y:.1f}" for line in series.values() for x, y, name in line)
    caption = _paper_caption("PRMScore by number of training samples", is_comparable)
    figures = [y for line in series.values() for _, y, _ in line]
    chart = scatter_chart(series, "training samples", "PRMScore")
    return Figure(chart, said(f"{'; '.join(words)}.", figures), caption, is_comparable)


def _paper_caption(title: str, is_comparable: bool) -> str:
    ours = ", with our systems as published" if is_comparable else ""
    return f"{title} (the paper's figure, drawn from its tables{ours})."


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
    caption = "Our scores by number of training records: human ratings only, then with increasing Monte-Carlo data."
    text = said(f"{'; '.join(words)}.", [y for line in series.values() for _, y in line])
    return [Figure(line_chart(series, "training records", "percent", spans), text, caption)]


def reward_quality(benchmark: str, found: Mapping[str, Rewards]) -> list[Block]:
    """ROC and calibration curves of each system's rewards, with area, calibration error and Brier score.

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
    axes = "mean reward of the steps", "share of correct steps"
    headers = ("system", "steps", "correct, %", "area under ROC", "calibration error", "Brier score")
    all_files = [from_files("statistics", rewards.files) for rewards in found.values()]
    return [
        Figure(
            line_chart(ranking | {"chance": _DIAGONAL}, *roc_axes, guide="chance"),
            said("; ".join(f"{row[0]}: area {row[3]}" for row in rows) + ".", all_files),
            f"ROC curve of the reward on the steps of {benchmark}: one point per threshold.",
        ),
        Figure(
            line_chart(calibration | {"calibrated": _DIAGONAL}, *axes, spans={}, guide="calibrated"),
            said(f"Share of correct steps by mean reward. {'; '.join(gaps)}.", all_files),
            f"Calibration of the reward on the steps of {benchmark}: one point per tenth of the range with {FEWEST} "
            "steps or more.",
        ),
        Table(
            f"Quality of the reward on the steps of {benchmark}. The figures are of each system's first run. An area "
            "of 1 is perfect and one of 0.5 is chance. The calibration error is the mean gap between reward and share "
            "of correct steps over ten bins, weighted by their steps. The Brier score is the mean squared gap between "
            "reward and label. For both, 0 is perfect.",
            headers,
            rows,
        ),
    ]


def _size(text: str) -> float | None:
    """``~350K`` as a number; ``None`` for an unknown size."""
    unit = {"K": 1e3, "M": 1e6}.get(text[-1:])
    return float(text.strip("~KM")) * unit if unit else None
