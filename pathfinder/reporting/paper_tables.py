"""The paper's result tables and figures with our rows and points."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pathfinder.benchmarks import paper
from pathfinder.benchmarks.metrics import Evaluated
from pathfinder.core.metrics import Measured
from pathfinder.pages.page import Block, Figure, Fold, Table
from pathfinder.pages.svg import dot_chart, scatter_chart
from pathfinder.reporting import cells, names
from pathfinder.reporting.evidence import reading_as_published
from pathfinder.reporting.names import (
    BENCHMARKS,
    NOT_APPLICABLE,
    PRMBENCH,
    PROCESSBENCH,
    SEARCH,
    Benchmark,
    label,
    name_of,
    reading_on,
)
from pathfinder.reporting.origins import made, sizes_of_paper
from pathfinder.reporting.results import Results, as_published, repaired
from pathfinder.reporting.tables import PUBLISHED_RULES, TITLES, known, scores_in

AS_PUBLISHED, GRADED_AS_PUBLISHED, REPAIRED = "as published", "graded as published", "repaired"
# Systems whose spelling differs between the paper's tables.
_SAME = {
    "Lemma-PRM800k-7B": "Llemma-PRM800K-7B",
    "RLHFlow-PRM-Mistral-8B": "RLHFlow-Mistral-8B",
    "RLHFlow-PRM-DeepSeek-8B": "RLHFlow-DeepSeek-8B",
}
_OF_PAPER = {
    paper.ours(variant, mix): "quality (one label)" if variant == "no_subtasks" else "soundness (error labels)"
    for mix in ("400k", "prm800k")
    for variant in ("full", "no_error_categories", "no_subtasks")
}
"""The readings of the paper's own rows: its ablation of the subtasks compares two questions."""


def paper_tables(results: Results, comparable: Collection[Benchmark]) -> list[Block]:
    """The paper's five result tables, followed by our rows under the published rule and under our own.

    Only a row as published, or graded as published, has a difference from the paper's figures: the paper used no other
    rule. There is none where data, models or items differ from the paper's: on all but the ``comparable`` benchmarks.
    """
    tables = [_paper_table(results, bench, bench.table, bench in comparable) for bench in names.BENCHMARKS]
    tables += [_scale_table(results, comparable)]
    tables.insert(1, _paper_table(results, PROCESSBENCH, names.PROCESSBENCH_FULL, PROCESSBENCH in comparable))
    return list(tables) if comparable else [Fold(table.caption.partition(". ")[0], [table]) for table in tables]


def _paper_table(results: Results, benchmark: Benchmark, table: paper.PaperTable, is_comparable: bool) -> Table:
    theirs = {row.name: row.values for row in table.rows}
    found: list[tuple[str, str, list[float | None], list[str]]] = []
    published = results.read(benchmark, as_published)
    for members in cells.measured(results, benchmark):
        run, name = members[0], f"ours: {label(members)}"
        metrics = results.benchmarks[benchmark][run.name]
        if values := known(cells.scores_of(members, published, table.columns)):
            reading = reading_on(SEARCH, run.variant) if benchmark is SEARCH else reading_as_published(run.variant)
            found.append((f"{name}, {_words(benchmark, metrics)}", reading, values, [paper.ours(run.variant, run.mix)]))
        if values := known(cells.scores_of(members, results.read(benchmark, repaired), table.columns)):
            found.append((f"{name}, {REPAIRED}", reading_on(benchmark, run.variant), values, []))
    for name, metrics in results.published[benchmark].items():
        titles = results.titles(name)
        is_same = not paper.differs(benchmark.key, titles) and _votes_as_published(metrics)
        for words, view, compared in _views(benchmark, metrics):
            title = ", ".join(filter(None, (f"measured: {titles[0]}", words)))
            found.append(
                (title, view.reading or NOT_APPLICABLE, scores_in(view, table.columns), titles * (compared and is_same))
            )
    ours = [
        ((name, by), values, next((theirs[title] for title in titles * is_comparable if title in theirs), None))
        for name, by, values, titles in found
    ]
    printed = [(name, _paper_reading(benchmark, name), *cells.figures(values)) for name, values in theirs.items()]
    return _with_ours(table.caption, ("system", "read by", *table.headings), printed, ours)


def _paper_reading(benchmark: Benchmark, name: str) -> str:
    """The reading of a row of the paper, if it is its own system's; every search follows the reward."""
    reading = _OF_PAPER.get(name, NOT_APPLICABLE)
    return SEARCH.reading if benchmark is SEARCH and name in _OF_PAPER else reading


def _votes_as_published(metrics: Measured) -> bool:
    """False for an LLM judge whose votes are not the paper's: its metrics leave out the paper's figures."""
    return not (isinstance(metrics, Evaluated) and metrics.votes) or bool(metrics.published)


def _views(benchmark: Benchmark, metrics: Measured) -> list[tuple[str, Measured, bool]]:
    """The rules of a published system: words, figures, and whether the paper's figures follow this rule.

    Where a benchmark's evaluator uses a PRM in another way than its authors, the paper's figures are the evaluator's,
    whose arithmetic counts labels past the last step.
    """
    rules, official = metrics.rules, metrics.official
    if "benchmark" in rules:
        return [
            (PUBLISHED_RULES["benchmark"], official or rules["benchmark"], True),
            (PUBLISHED_RULES["authors"], rules["authors"], False),
        ]
    if official:
        return [(_words(benchmark, metrics), official, True), (REPAIRED, metrics.by_default_rule, False)]
    return [("", metrics, True)]


def _words(benchmark: Benchmark, metrics: Measured) -> str:
    """The words for the row of a system's ``official`` figures."""
    return GRADED_AS_PUBLISHED if benchmark is SEARCH and metrics.preset != "official" else AS_PUBLISHED


def _scale_table(results: Results, comparable: Collection[Benchmark]) -> Table:
    printed_by_mix = zip(("prm800k", "400k", "550k"), (row.values for row in names.SCALE), strict=True)
    theirs = {
        mix: [value if bench in comparable else None for bench, value in zip(BENCHMARKS, values, strict=True)]
        for mix, values in printed_by_mix
    }
    ours = []
    words_of_search = "" if SEARCH in results.official else f" (search: {GRADED_AS_PUBLISHED})"
    for view, words in ((as_published, AS_PUBLISHED + words_of_search), (repaired, REPAIRED)):
        for run, records, others, values in cells.scale_points(results, view):
            if measured := known(values):
                compared = theirs.get(run.mix) if comparable and view is as_published else None
                sizes = cells.figures([records, others], ",")
                ours.append(((f"ours: {name_of(run)}, {words}", *sizes), measured, compared))
    headers = ("model", "samples", "Mistral samples", *TITLES)
    printed = [
        (row.name, *sizes_of_paper(place, row), *cells.figures(row.values)) for place, row in enumerate(names.SCALE)
    ]
    return _with_ours(names.CAPTIONS["scaling"], headers, printed, ours)


def _with_ours(
    caption: str,
    headers: Sequence[str],
    printed: Sequence[tuple[str, ...]],
    ours: Sequence[tuple[tuple[str, ...], Sequence[float | None], Sequence[float | None] | None]],
) -> Table:
    """The paper's rows, then each of ours (first cells, figures) and its difference from the paper's figures."""
    rows, measured = list(printed), set()
    for first_cells, values, theirs in ours:
        measured.add(len(rows))
        rows.append((*first_cells, *cells.figures(values)))
        if theirs is not None:
            pairs = zip(values, theirs, strict=True)
            gaps = [
                None if one is None or other is None else made("difference", one - other, [one, other])
                for one, other in pairs
            ]
            padding = [NOT_APPLICABLE] * (len(first_cells) - 1)
            rows.append(("difference", *padding, *cells.figures(gaps, "+z.1f")))
    return Table(caption, headers, rows, frozenset(measured), measured=frozenset(measured))


def performance(results: Results, comparable: Collection[Benchmark]) -> Figure:
    """The paper's figure "Performance comparison", with our systems under the published rules where comparable."""
    rows: dict[str, dict[str, float]] = {}
    for bench in BENCHMARKS:
        for row in bench.table.rows:
            if ("7B" in row.name or "8B" in row.name) and " w/o " not in row.name:
                rows.setdefault(_SAME.get(row.name, row.name), {})[bench.title] = row.values[-1]
    for bench in comparable:
        published = results.read(bench, as_published)
        for members in results.systems:
            if (value := cells.mean(each.headline for each in cells.seeds(members, published))) is not None:
                rows.setdefault(f"ours: {name_of(members[0])}", {})[bench.title] = value
    words = (f"{name}: " + ", ".join(f"{b} {value:.1f}" for b, value in row.items()) for name, row in rows.items())
    figures = [value for row in rows.values() for value in row.values()]
    return _figure(dot_chart(rows, "percent"), words, figures, "Performance comparison", bool(comparable))


def scale(results: Results, comparable: Collection[Benchmark]) -> Figure:
    """The paper's figure of PRMScore by data scale, with our systems under the published rules if comparable."""
    sizes = {row.name: size for row in paper.PROCESSBENCH.rows if (size := _size(row.samples))}
    scores = {_SAME.get(row.name, row.name): row.values[-1] for row in PRMBENCH.table.rows}
    others = [(size, scores[name], name) for name, size in sizes.items() if name in scores and "PathFinder" not in name]
    theirs = [(_size(row.samples) or 1.0, row.values[1], f"{row.name} {row.samples}") for row in names.SCALE]
    series = {"other PRMs": others, "the paper's PathFinder-PRM": theirs}
    points = cells.scale_points(results, as_published) if PRMBENCH in comparable else []
    if ours := [(float(n), values[1], name_of(run)) for run, n, _, values in points if values[1]]:
        series["ours"] = ours
    words = (f"{name} {x:,.0f} samples {y:.1f}" for line in series.values() for x, y, name in line)
    figures = [y for line in series.values() for _, y, _ in line]
    drawing = scatter_chart(series, "training samples", "PRMScore")
    return _figure(drawing, words, figures, "PRMScore by number of training samples", PRMBENCH in comparable)


def _figure(svg: str, words: Iterable[str], figures: Sequence[float], title: str, is_comparable: bool) -> Figure:
    ours = ", with our systems as published" if is_comparable else ""
    caption = f"{title} (the paper's figure, drawn from its tables{ours})."
    return replace(cells.chart(svg, words, figures, caption), is_measured=is_comparable)


def _size(text: str) -> float | None:
    """``~350K`` as a number; ``None`` for an unknown size."""
    unit = {"K": 1e3, "M": 1e6}.get(text[-1:])
    return float(text.strip("~KM")) * unit if unit else None
