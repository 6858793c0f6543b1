"""The tables and charts of scores on each benchmark, and the details behind the scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pathfinder.benchmarks import paper
from pathfinder.benchmarks.metrics import ProcessBench
from pathfinder.core.metrics import Measured
from pathfinder.core.readings import ASKS, DEFINITION
from pathfinder.core.runs import Run
from pathfinder.pages.page import Block, Fold, Table, Text
from pathfinder.pages.svg import Bar, interval_chart, line_chart
from pathfinder.policy.choosing import RULES
from pathfinder.policy.metrics import Details
from pathfinder.reporting import cells, names
from pathfinder.reporting.names import (
    CAPTIONS,
    PRMBENCH,
    PROCESSBENCH,
    SEARCH,
    TEXTS,
    Benchmark,
    label,
    marked,
    name_of,
    reading_on,
)
from pathfinder.reporting.origins import in_percent, said
from pathfinder.reporting.results import Line, Results, Score

_READINGS = {DEFINITION: "by definition", "soundness": "soundness", "quality": "quality", "official": "rule official"}
PUBLISHED_RULES = {"authors": "its authors' rule", "benchmark": "the benchmark's rule"}
TITLES = tuple(benchmark.title for benchmark in names.BENCHMARKS)
Row = tuple[str, list[float | None]]


def headline(results: Results, lines: Sequence[Line]) -> Table:
    """The main results, including baselines."""
    rows = [
        (("baseline: " if line.is_baseline else "") + line.label, *map(cells.printed, line.cells)) for line in lines
    ]
    caption = CAPTIONS["results"]
    caption += "".join(_read_by(results, bench) for bench in names.BENCHMARKS)
    if results.official:
        caption += f" Our systems follow the published rules in {', '.join(b.title for b in results.official)}."
    caption += _rules_of_published(results)
    emphasis = frozenset(place for place, line in enumerate(lines) if not line.is_baseline)
    return Table(caption, ("system", *names.COLUMNS.values()), rows, emphasis)


def _read_by(results: Results, benchmark: Benchmark) -> str:
    """A sentence on the reading of our systems on a benchmark, and on the systems without it."""
    if not (measured := cells.measured(results, benchmark)):
        return ""
    asked = results.asked(benchmark)
    readings = {label(members): results.reading_besides(benchmark, members[0]) for members in measured}
    others = [f"{name} by {reading}" for name, reading in readings.items() if reading]
    exceptions = f" ({'; '.join(others)}, for lack of that reading)" if others else ""
    begin = benchmark.title[0].upper() + benchmark.title[1:]
    return f" {begin} reads {asked}: {ASKS[asked]}{exceptions}."


def _rules_of_published(results: Results) -> str:
    """A sentence on the rules of the published systems on ProcessBench and PRMBench; empty without any."""
    files = (results.published[benchmark] for benchmark in (PROCESSBENCH, PRMBENCH))
    found = {results.titles(name)[0]: metrics for measured in files for name, metrics in measured.items()}
    by = {
        "their authors' rules": [title for title, metrics in found.items() if metrics.rules],
        "the published rules": [title for title, metrics in found.items() if metrics.preset == "official"],
    }
    parts = [f"by {rules}: {', '.join(titles)}" for rules, titles in by.items() if titles]
    return f" Published systems are read {'; '.join(parts)}." if parts else ""


def scores(results: Results, benchmark: Benchmark) -> list[Block]:
    """The scores on each part of a benchmark."""
    return _searches(results) if benchmark is SEARCH else _by_part(results, benchmark)


def details(results: Results, benchmark: Benchmark) -> list[Block]:
    """The details behind the scores on a benchmark."""
    found = {PROCESSBENCH: _processbench_details, PRMBENCH: _prmbench_details, SEARCH: _search_details}
    return found[benchmark](results)


def _by_part(results: Results, benchmark: Benchmark) -> list[Block]:
    """The scores on each part of ProcessBench or PRMBench, by reading: our systems, published PRMs and baselines."""
    found, columns = results.benchmarks[benchmark], benchmark.table.columns
    rows: list[Row] = []
    for members in cells.measured(results, benchmark):
        read = {run.name: found[run.name].readings or {benchmark.reading: found[run.name]} for run in members}
        for reading, title in _READINGS.items():
            if by_run := {name: readings[reading] for name, readings in read.items() if reading in readings}:
                rows.append((f"{label(members)}, {title}", cells.scores_of(members, by_run, columns)))
    for name, published in results.published[benchmark].items():
        of_one = {published.reading or "authors": published}
        for rule, metrics in ({**published.rules, **published.readings} or of_one).items():
            title = f"{results.titles(name)[0]}, {(PUBLISHED_RULES | _READINGS).get(rule, rule)}"
            rows.append((title, scores_in(metrics, columns)))
    for name, baseline in results.baselines(benchmark).items():
        rows.append((f"baseline: {name.replace('_', ' ')}", scores_in(baseline, columns)))
    return _table(results, benchmark, rows)


def _searches(results: Results) -> list[Block]:
    """Accuracy on each set: the policy without search, the random pick, guided search and best of n."""
    found, columns = results.search, paper.SEARCH.columns
    rows: list[Row] = []
    if (sample := results.sample) is not None:
        rows += [(figure, [sample.score(figure, column) for column in columns]) for figure in results.sampled]
    if (control := found.get(names.CONTROL)) is not None:
        rows.append(("random pick (control)", scores_in(control, columns)))
    for members in cells.measured(results, SEARCH):
        name = _named(members, SEARCH)
        rows.append((f"{name}, guided search", cells.scores_of(members, found, columns)))
        chosen = [best for run in members if (best := found[run.name].best_of_n)]
        for rule, (way, score) in RULES.items():
            if values := known([cells.mean(best.score(rule, column) for best in chosen) for column in columns]):
                rows.append((f"{name}, {way} n by {score}", values))
        has_both = reading_on(SEARCH, members[0].variant) != "soundness"  # else these are the rows above
        sound = [each for best in chosen if has_both and (each := best.soundness) is not None]
        for rule in ("min", "weighted_min") if sound else ():
            way, score = RULES[rule]
            values = [cells.mean(each.score(rule, column) for each in sound) for column in columns]
            rows.append((f"{name}, {way} n by {score} of soundness", values))
    for name, metrics in results.published[SEARCH].items():
        rows.append((f"{results.titles(name)[0]}, guided search", scores_in(metrics, columns)))
    return _table(results, SEARCH, rows)


def _named(members: Sequence[Run], benchmark: Benchmark) -> str:
    """A system's label, with its reading if it lacks the benchmark's."""
    return marked(label(members), benchmark, members[0].variant)


def scores_in(metrics: Measured, columns: Sequence[str]) -> list[float | None]:
    """The score in each column."""
    return [metrics.score(column) for column in columns]


def _table(results: Results, benchmark: Benchmark, rows: Sequence[Row]) -> list[Block]:
    if not rows:
        return [Text(f"{names.MISSING}: run the {benchmark.key} stage.")]
    printed = [(name, *cells.figures(values)) for name, values in rows]
    caption, headers = TEXTS["benchmarks"][benchmark.key], ("system", *benchmark.table.headings)
    return [Table(caption, headers, printed)]


def known(values: list[float | None]) -> list[float | None]:
    """``values``, or nothing if all of them are missing."""
    return values if any(value is not None for value in values) else []


def each_run(results: Results) -> list[Block]:
    """The main figures of every run, if some system has several."""
    if all(len(members) == 1 for members in results.systems):
        return []
    measured = results.benchmarks.values()
    rows = [
        (
            f"{run.name} ({names.name_of(run)})",
            *cells.figures(found[run.name].headline if run.name in found else None for found in measured),
        )
        for run in results.runs
    ]
    return cells.folded("Every run", CAPTIONS["every_run"], ("run and system", *TITLES), rows)


def bars_of(lines: Sequence[Line]) -> dict[str, list[Bar]]:
    """The measured systems of each benchmark, by its key."""
    return {
        bench.key: [
            Bar(line.name, cell.value, cell.low, cell.high, line.is_baseline)
            for line in lines
            if isinstance(cell := line.cells[place], Score)
        ]
        for place, bench in enumerate(names.BENCHMARKS)
    }


def performance(lines: Sequence[Line]) -> list[Block]:
    """One chart per benchmark: every system with its interval."""
    charts: list[Block] = []
    for bench, bars in zip(names.BENCHMARKS, bars_of(lines).values(), strict=True):
        words = (f"{bar.name} {bar.value:.1f} [{bar.low:.1f}, {bar.high:.1f}]" for bar in bars)
        values = [figure for bar in bars for figure in (bar.value, bar.low, bar.high)]
        title = bench.title[0].upper() + bench.title[1:]
        caption = f"{title} with 95 % intervals, read as in the table. Baselines are hollow."
        charts += [cells.chart(interval_chart(bars, "percent"), words, values, caption)] if bars else []
    return charts


def our_scale(results: Results, lines: Sequence[Line]) -> list[Block]:
    """Our main figures by the number of training records; empty with fewer than two mixes."""
    points = cells.scale_points(results)
    if len(points) < 2:
        return []
    of_system = {line.name: line.cells for line in lines}
    series: dict[str, list[tuple[float, float]]] = {}
    spans: dict[str, list[tuple[float, float, float]]] = {}
    for place, bench in enumerate(names.BENCHMARKS):
        for run, records, _, values in points:
            if (value := values[place]) is not None:
                series.setdefault(bench.title, []).append((float(records), value))
            if isinstance(cell := of_system[name_of(run)][place], Score):
                spans.setdefault(bench.title, []).append((float(records), cell.low, cell.high))
    words = (f"{name}: " + ", ".join(f"{y:.1f} at {x:,.0f}" for x, y in line) for name, line in series.items())
    drawing = line_chart(series, "training records", "percent", spans)
    return [cells.chart(drawing, words, [y for line in series.values() for _, y in line], CAPTIONS["our_scale"])]


def stopped_early(results: Results, consequence: str) -> list[Block]:
    """A sentence that names the runs without scores after the first incorrect step, if there are any."""
    if not (names := results.stopped_early):
        return []
    reason = "no scores after the first incorrect step (processbench.early_stop)"
    return [Text(f"{', '.join(names)}: {reason}; {consequence}.")]


def _too_long(results: Results, benchmark: Benchmark, consequence: str) -> list[Block]:
    """A sentence that counts each system's solutions without scores, if there are any."""
    found = {**results.benchmarks[benchmark], **results.published[benchmark]}
    counts = {name: metrics.too_long for name, metrics in found.items()}
    counts = {name: max(n.values(), default=0) if isinstance(n, Mapping) else n for name, n in counts.items()}
    if not (known := {name: count for name, count in counts.items() if count}):
        return []
    text = ", ".join(f"{name} {count:,}" for name, count in known.items())
    return [Text(said(f"Solutions longer than the model's context, {consequence}: {text}.", known.values()))]


def _processbench_details(results: Results) -> list[Block]:
    """Error and correct accuracy on each subset, F1 by generator, and results with other thresholds."""
    found = results.processbench
    systems = cells.measured(results, PROCESSBENCH)
    parts = [f"{name}, {kind}" for name in paper.PROCESSBENCH.headings[:-1] for kind in ("error", "correct")]
    labels = [_named(members, PROCESSBENCH) for members in systems]
    rows = [(name, *cells.figures(_accuracies(members, found))) for name, members in zip(labels, systems, strict=True)]
    blocks = cells.folded("Error and correct accuracy", CAPTIONS["accuracies"], ("system", *parts), rows)
    generators = next(filter(None, (metrics.generators for metrics in found.values())), {})
    rows = [
        (
            name,
            *cells.figures([row.n], ","),
            *cells.figures(
                cells.mean(each.generators[name].f1 for each in cells.seeds(m, found) if name in each.generators)
                for m in systems
            ),
        )
        for name, row in generators.items()
    ]
    blocks += cells.folded("By generator", CAPTIONS["generators"], ("generator", "solutions", *labels), rows)
    if any(metrics.thresholds for metrics in found.values()):
        blocks.append(_thresholds(results))
    blocks += _too_long(results, PROCESSBENCH, "which count as missed")
    return [*blocks, *stopped_early(results, "no other threshold was tried")]


def _accuracies(members: Sequence[Run], found: Mapping[str, ProcessBench]) -> Iterator[float | None]:
    """Error and correct accuracy on each subset, the mean over seeds."""
    for name in paper.PROCESSBENCH.columns[:-1]:
        parts = [metrics.subsets[name] for metrics in cells.seeds(members, found) if name in metrics.subsets]
        yield cells.mean(part.error_acc for part in parts)
        yield cells.mean(part.correct_acc for part in parts)


def _thresholds(results: Results) -> Fold:
    first = {members[0].name: name_of(members[0]) for members in results.systems}
    rows, series = [], {}
    for run, metrics in results.processbench.items():
        if (found := metrics.thresholds) is None:
            continue
        if run in first:
            series[first[run]] = [(x, y) for x, y in found.curve]
        for title, chosen in found.titled().items():
            if chosen is not None:
                values = [chosen.subsets.get(column) for column in paper.PROCESSBENCH.columns[:-1]]
                at = cells.figures([chosen.threshold], ".3f")
                rows.append((f"{run}, {title}", *at, *cells.figures([*values, chosen.mean_f1])))
    headers = ("run and choice", "threshold", *paper.PROCESSBENCH.headings)
    words = (f"{name}: best {max(y for _, y in line):.1f}" for name, line in series.items())
    heights = [y for line in series.values() for _, y in line]
    caption = f"{PROCESSBENCH.title} of each system's first run by threshold."
    figure = cells.chart(line_chart(series, "threshold", PROCESSBENCH.title), words, heights, caption)
    return Fold("Other thresholds", [figure, Table(CAPTIONS["thresholds"], headers, rows)])


def _prmbench_details(results: Results) -> list[Block]:
    """The published evaluator's auxiliary figures, over all classes."""
    rows = []
    for members in cells.measured(results, PRMBENCH):
        if known := [found for run in members if (found := results.prmbench[run.name].details) is not None]:
            shares = [cells.mean(found.total.get(key) for found in known) for key in TEXTS["auxiliary"]]
            rows.append((_named(members, PRMBENCH), *cells.figures(map(in_percent, shares))))
    headers = ("system", *TEXTS["auxiliary"].values())
    blocks = cells.folded("Auxiliary figures", CAPTIONS["auxiliary"], headers, rows)
    return [*blocks, *_too_long(results, PRMBENCH, "which count as invalid")]


def _search_details(results: Results) -> list[Block]:
    """The ends of the searches, and the calls that they needed."""
    found = {name: metrics.details for name, metrics in results.search.items()}
    found |= {"whole solutions": results.sample.details if results.sample else None}
    rows = [(name, *cells.figures(details.titled().values(), ",")) for name, details in found.items() if details]
    headers = ("run", *Details.headings().values())
    return cells.folded("How the searches went", CAPTIONS["searches"], headers, rows)
