"""The report's tables of scores: our systems by part of each benchmark, and the paper's tables with our rows."""

from __future__ import annotations

from collections.abc import Sequence

from pathfinder.benchmarks import paper
from pathfinder.core.metrics import Measured
from pathfinder.pages.page import Block, Fold, Table, Text
from pathfinder.policy.choosing import RULES
from pathfinder.reporting import cells, names
from pathfinder.reporting.names import PROCESSBENCH, SEARCH, Benchmark, label, name_of
from pathfinder.reporting.origins import made, of_paper, sizes_of_paper
from pathfinder.reporting.results import Line, Results, as_published, repaired

_RULES = {"both": "rule both", "pass1": "rule pass 1", "official": "rule official"}
_PUBLISHED_RULES = _RULES | {"authors": "its authors' rule", "benchmark": "the benchmark's rule"}
AS_PUBLISHED, GRADED_AS_PUBLISHED, REPAIRED = "as published", "graded as published", "repaired"
_TWO_PASSES = "both passes; a step is incorrect if its reward, given the two predicted labels, is below one half"
_TITLES = tuple(benchmark.title for benchmark in names.BENCHMARKS)
Row = tuple[str, list[float | None]]


def headline(results: Results, lines: Sequence[Line]) -> Table:
    """The main results, including baselines."""
    rows = [
        (("baseline: " if line.is_baseline else "") + line.label, *map(cells.printed, line.cells)) for line in lines
    ]
    caption = (
        "Scores in percent with 95 % intervals in brackets. The intervals cover the choice of problems and, if any "
        "system has several seeds, the choice of seeds. The baselines follow our systems."
    )
    others = [bench.title for bench in names.BENCHMARKS[:2] if bench not in results.official]
    if others:
        caption += f" Rule of our systems on {' and '.join(others)}: {_TWO_PASSES}."
    if results.official:
        caption += f" Our systems follow the published rules in {', '.join(b.title for b in results.official)}."
    emphasis = frozenset(place for place, line in enumerate(lines) if not line.is_baseline)
    return Table(caption, ("system", *names.COLUMNS.values()), rows, emphasis)


def by_part(results: Results, benchmark: Benchmark) -> list[Block]:
    """The scores on each part of ProcessBench or PRMBench, by rule: our systems, published PRMs and baselines."""
    found, columns = results.benchmarks[benchmark], benchmark.table.columns
    rows: list[Row] = []
    for members in cells.measured(results, benchmark):
        ruled = {run.name: found[run.name].rules or {"both": found[run.name]} for run in members}
        for rule, title in _RULES.items():
            if by_run := {name: rules[rule] for name, rules in ruled.items() if rule in rules}:
                rows.append((f"{label(members)}, {title}", cells.scores_of(members, by_run, columns)))
    for name, published in results.published[benchmark].items():
        for rule, metrics in (published.rules or {"authors": published}).items():
            title = f"{results.titles(name)[0]}, {_PUBLISHED_RULES.get(rule, rule)}"
            rows.append((title, _scores(metrics, columns)))
    for name, baseline in results.baselines(benchmark).items():
        rows.append((f"baseline: {name.replace('_', ' ')}", _scores(baseline, columns)))
    return _table(results, benchmark, rows)


def search(results: Results) -> list[Block]:
    """Accuracy on each set: the policy without search, the random pick, guided search and best of n."""
    found, columns = results.search, paper.SEARCH.columns
    rows: list[Row] = []
    if (sample := results.sample) is not None:
        rows += [(figure, [sample.score(figure, column) for column in columns]) for figure in results.sampled]
    if (control := found.get(names.CONTROL)) is not None:
        rows.append(("random pick (control)", _scores(control, columns)))
    for members in cells.measured(results, SEARCH):
        rows.append((f"{label(members)}, guided search", cells.scores_of(members, found, columns)))
        chosen = [best for run in members if (best := found[run.name].best_of_n)]
        for rule, (way, score) in RULES.items():
            if values := _known([cells.mean(best.score(rule, column) for best in chosen) for column in columns]):
                rows.append((f"{label(members)}, {way} n by {score}", values))
    for name, metrics in results.published[SEARCH].items():
        rows.append((f"{results.titles(name)[0]}, guided search", _scores(metrics, columns)))
    return _table(results, SEARCH, rows)


def _scores(metrics: Measured, columns: Sequence[str]) -> list[float | None]:
    return [metrics.score(column) for column in columns]


def _table(results: Results, benchmark: Benchmark, rows: Sequence[Row]) -> list[Block]:
    if not rows:
        return [Text(f"{names.MISSING}: run the {benchmark.key} stage.")]
    printed = [(name, *cells.figures(values)) for name, values in rows]
    caption, headers = names.TEXTS["benchmarks"][benchmark.key], ("system", *benchmark.table.headings)
    return [Table(caption, headers, printed)]


def paper_tables(results: Results, is_comparable: bool) -> list[Block]:
    """The paper's five result tables, followed by our rows under the published rule and under our own.

    Only a row under the published rule has a difference from the paper's figures: the paper used no other rule. There
    is none if the data or models are others (not ``is_comparable``).
    """
    tables = [_paper_table(results, bench, bench.table, is_comparable) for bench in names.BENCHMARKS]
    tables += [_scale(results, is_comparable)]
    tables.insert(1, _paper_table(results, PROCESSBENCH, paper.PROCESSBENCH_FULL, is_comparable))
    return list(tables) if is_comparable else [Fold(table.caption.partition(". ")[0], [table]) for table in tables]


def _paper_table(results: Results, benchmark: Benchmark, table: paper.PaperTable, is_comparable: bool) -> Table:
    theirs = {row.name: of_paper(table.label, place, row.values) for place, row in enumerate(table.rows)}
    found: list[tuple[str, list[float | None], list[str]]] = []
    published = results.read(benchmark, as_published)
    for members in cells.measured(results, benchmark):
        name, titles = f"ours: {label(members)}", [paper.ours(members[0].variant, members[0].mix)]
        if values := _known(cells.scores_of(members, published, table.columns)):
            found.append((f"{name}, {_words(results, benchmark)}", values, titles))
        if values := _known(cells.scores_of(members, results.read(benchmark, repaired), table.columns)):
            found.append((f"{name}, {REPAIRED}", values, []))
    for name, metrics in results.published[benchmark].items():
        titles = results.titles(name)
        for words, reading, compared in _readings(metrics):
            title = ", ".join(filter(None, (f"measured: {titles[0]}", words)))
            found.append((title, _scores(reading, table.columns), titles if compared else []))
    ours = [
        ((name,), values, next((theirs[row.name] for row in map(table.row, titles) if row), None))
        for name, values, titles in ((name, values, titles if is_comparable else []) for name, values, titles in found)
    ]
    printed = [(name, *cells.figures(values)) for name, values in theirs.items()]
    return _with_ours(table.caption, ("system", *table.headings), printed, ours)


def _readings(metrics: Measured) -> list[tuple[str, Measured, bool]]:
    """The rules of a published system: words, figures, and whether the paper's figures follow this rule.

    Where a benchmark's evaluator uses a PRM in another way than its authors, the paper's figures are the evaluator's.
    """
    rules = metrics.rules
    if official := as_published(metrics):
        return [(AS_PUBLISHED, official, True), (REPAIRED, repaired(metrics), False)]
    if "benchmark" in rules:
        return [(_PUBLISHED_RULES[rule], rules[rule], rule == "benchmark") for rule in ("benchmark", "authors")]
    return [("", metrics, True)]


def _known(values: list[float | None]) -> list[float | None]:
    """``values``, or nothing if all of them are missing."""
    return values if any(value is not None for value in values) else []


def _words(results: Results, benchmark: Benchmark) -> str:
    """How close our rows under the published rule are to the published runner."""
    return GRADED_AS_PUBLISHED if benchmark is SEARCH and SEARCH not in results.official else AS_PUBLISHED


def _scale(results: Results, is_comparable: bool) -> Table:
    figures = [of_paper(paper.SCALE_LABEL, place, row.values) for place, row in enumerate(paper.SCALE)]
    theirs = dict(zip(("prm800k", "400k", "550k"), figures, strict=True))
    ours = []
    words_of_search = "" if SEARCH in results.official else f" (search: {GRADED_AS_PUBLISHED})"
    for reading, words in ((as_published, AS_PUBLISHED + words_of_search), (repaired, REPAIRED)):
        for run, records, others, values in cells.scale_points(results, reading):
            if known := _known(values):
                compared = theirs.get(run.mix) if is_comparable and reading is as_published else None
                sizes = cells.figures([records, others], ",")
                ours.append(((f"ours: {name_of(run)}, {words}", *sizes), known, compared))
    headers = ("model", "samples", "Mistral samples", *_TITLES)
    caption = "Effect of scaling the Mistral data in the paper and here. Our sizes are in training records."
    printed = [
        (row.name, *sizes_of_paper(place, row), *cells.figures(values))
        for place, (row, values) in enumerate(zip(paper.SCALE, figures, strict=True))
    ]
    return _with_ours(caption, headers, printed, ours)


def _with_ours(
    caption: str,
    headers: Sequence[str],
    printed: Sequence[tuple[str, ...]],
    ours: Sequence[tuple[tuple[str, ...], Sequence[float | None], Sequence[float] | None]],
) -> Table:
    """The paper's rows, then each of ours (first cells, figures) and its difference from the paper's figures."""
    rows, measured = list(printed), set()
    for first_cells, values, theirs in ours:
        measured.add(len(rows))
        rows.append((*first_cells, *cells.figures(values)))
        if theirs is not None:
            pairs = zip(values, theirs, strict=True)
            gaps = [
                None if value is None else made("difference", value - printed, [value, printed])
                for value, printed in pairs
            ]
            padding = [names.NOT_APPLICABLE] * (len(first_cells) - 1)
            rows.append(("difference", *padding, *cells.figures(gaps, "+.1f")))
    return Table(caption, headers, rows, frozenset(measured), measured=frozenset(measured))


def each_run(results: Results) -> list[Block]:
    """The main figures of every run, if some system has several."""
    if all(len(members) == 1 for members in results.systems):
        return []
    measured = results.benchmarks.values()
    rows = [
        (run.name, *cells.figures(found[run.name].headline if run.name in found else None for found in measured))
        for run in results.runs
    ]
    caption = "Every run, in percent. The suffix -s2 marks the second seed."
    return cells.folded("Every run", caption, ("run", *_TITLES), rows)
