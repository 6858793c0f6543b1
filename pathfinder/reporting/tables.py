"""The report's tables of scores: our systems by part of each benchmark, and the paper's tables with our rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pathfinder.benchmarks import paper
from pathfinder.core.runs import Run
from pathfinder.pages.page import Block, Fold, Table, Text
from pathfinder.reporting import cells
from pathfinder.reporting.results import (
    BENCHMARKS,
    CONTROL,
    HEADERS,
    MISSING,
    NOT_APPLICABLE,
    PRMBENCH,
    PROCESSBENCH,
    SEARCH,
    TABLES,
    Benchmark,
    Line,
    Metrics,
    Results,
    baselines_of,
    label,
    name_of,
    sampled_figures,
)

_HEADLINE = (
    "Scores in percent with 95 % intervals in brackets: over problems and, if any system has several seeds, over "
    "seeds. The baselines follow our systems."
)
_RULES = {"both": "rule both", "pass1": "rule pass 1"}
_PUBLISHED_RULES = {"authors": "its authors' rule", "benchmark": "the benchmark's rule"}
_BEST = ("min", "product", "last", "mean")
_VALUES: dict[Benchmark, cells.Value] = {
    PROCESSBENCH: cells.subset,
    PRMBENCH: cells.class_or_category,
    SEARCH: cells.search_set,
}


def headline(lines: Sequence[Line]) -> Table:
    """The main results, including baselines."""
    rows = [(("baseline: " if line.is_baseline else "") + line.label, *map(str, line.cells)) for line in lines]
    emphasis = frozenset(place for place, line in enumerate(lines) if not line.is_baseline)
    return Table(_HEADLINE, HEADERS, rows, emphasis, str(TABLES))


def processbench(results: Results) -> list[Block]:
    """F1 on each subset under both rules, of our systems, published PRMs and baselines."""
    explanation = (
        "F1 in percent. Rule “both”: a step is incorrect if its reward is below one half (the paper's Algorithm 1). "
        "Rule “pass 1”: a step is incorrect if a first-pass label is negative (the published evaluation code)."
    )
    return _by_part(results, PROCESSBENCH, paper.PROCESSBENCH, explanation)


def prmbench(results: Results) -> list[Block]:
    """Every class and category under both rules, of our systems, published PRMs and baselines."""
    explanation = (
        "PRMScore in percent. NR non-redundancy, NCL non-circular logic, ES empirical soundness, SC step "
        "consistency, DC domain consistency, CI confidence invariance, PS prerequisite sensitivity, DR deception "
        "resistance, MS multiple solutions. Simpl. (simplicity), Sound. (soundness) and Sens. (sensitivity) are the "
        "means of the classes to their left."
    )
    return _by_part(results, PRMBENCH, paper.PRMBENCH, explanation)


def search(results: Results) -> list[Block]:
    """Accuracy on each set: the policy without search, the random pick, guided search and best of n."""
    table, found = paper.SEARCH, results.benchmarks[SEARCH]
    *sets, _ = table.columns
    rows: list[tuple[str, Sequence[float | None]]] = []
    if (sample := results.sample) is not None:
        for figure in sampled_figures(sample):
            accuracies = [cells.nested(sample["sets"], column, figure) for column in sets]
            rows.append((figure, [*accuracies, sample["average"][figure]]))
    if (control := found.get(CONTROL)) is not None:
        rows.append(("random pick (control)", _columns(SEARCH, control, table)))
    for members in cells.measured(results, SEARCH):
        rows.append((f"{label(members)}, guided search", _means(SEARCH, members, found, table)))
        for rule in _BEST:
            paths = [*(("sets", column, rule) for column in sets), ("average", rule)]
            best = [cells.mean_of(members, found, "best_of_n", *path) for path in paths]
            if any(value is not None for value in best):
                rows.append((f"{label(members)}, best of n by {rule}", best))
    for name, metrics in results.published[SEARCH].items():
        rows.append((f"{results.titles(name)[0]}, guided search", _columns(SEARCH, metrics, table)))
    return _table(results, SEARCH, table, "Accuracy in percent.", rows)


def _by_part(results: Results, benchmark: Benchmark, table: paper.PaperTable, caption: str) -> list[Block]:
    found = results.benchmarks[benchmark]
    rows: list[tuple[str, Sequence[float | None]]] = []
    for members in cells.measured(results, benchmark):
        ruled = {run.name: found[run.name] for run in members if run.name in found}
        ruled = {name: metrics.get("rules", {"both": metrics}) for name, metrics in ruled.items()}
        for rule, title in _RULES.items():
            if metrics := {name: rules[rule] for name, rules in ruled.items() if rule in rules}:
                rows.append((f"{label(members)}, {title}", _means(benchmark, members, metrics, table)))
    for name, published in results.published[benchmark].items():
        for rule, metrics in published.get("rules", {"authors": published}).items():
            title = f"{results.titles(name)[0]}, {_PUBLISHED_RULES.get(rule, rule)}"
            rows.append((title, _columns(benchmark, metrics, table)))
    for name, baseline in baselines_of(found).items():
        rows.append((f"baseline: {name.replace('_', ' ')}", _columns(benchmark, baseline, table)))
    return _table(results, benchmark, table, caption, rows)


def _columns(benchmark: Benchmark, metrics: Metrics, table: paper.PaperTable) -> list[float | None]:
    return [_VALUES[benchmark](metrics, column) for column in table.columns]


def _means(
    benchmark: Benchmark, members: Sequence[Run], metrics: Mapping[str, Metrics], table: paper.PaperTable
) -> list[float | None]:
    return cells.row_of(members, metrics, _VALUES[benchmark], table.columns)


def _table(
    results: Results,
    benchmark: Benchmark,
    table: paper.PaperTable,
    caption: str,
    rows: Sequence[tuple[str, Sequence[float | None]]],
) -> list[Block]:
    if not rows:
        return [Text(f"{MISSING}: run the {benchmark.key} stage.")]
    printed = [(name, *cells.figures(values)) for name, values in rows]
    origin = cells.origin_of(results, benchmark)
    return [Table(caption, ("system", *table.headings), printed, origin=origin)]


def paper_tables(results: Results, is_comparable: bool) -> list[Block]:
    """The paper's five result tables followed by our rows and the differences."""
    tables = [
        _paper_table(results, bench, table)
        for bench, table in (
            (PROCESSBENCH, paper.PROCESSBENCH),
            (PROCESSBENCH, paper.PROCESSBENCH_FULL),
            (PRMBENCH, paper.PRMBENCH),
            (SEARCH, paper.SEARCH),
        )
    ]
    tables.append(_scale(results))
    return list(tables) if is_comparable else [Fold(table.caption, [table]) for table in tables]


def _paper_table(results: Results, benchmark: Benchmark, table: paper.PaperTable) -> Table:
    rows: list[tuple[str, ...]] = [(row.name, *cells.figures(row.values)) for row in table.rows]
    marked: list[int] = []

    def add(name: str, values: Sequence[float | None], titles: Sequence[str]) -> None:
        marked.append(len(rows))
        rows.append((name, *cells.figures(values)))
        if (theirs := next(filter(None, map(table.row, titles)), None)) is not None:
            rows.append(("difference", *cells.gaps(values, theirs.values)))

    for members in results.systems.values():
        values = _means(benchmark, members, results.benchmarks[benchmark], table)
        if any(value is not None for value in values):
            add(f"ours: {label(members)}", values, [paper.ours(members[0].variant, members[0].mix)])
    for name, metrics in results.published[benchmark].items():
        titles = results.titles(name)
        add(f"measured: {titles[0]}", _columns(benchmark, metrics, table), titles)
    caption = f"{table.caption} ({table.label})"
    return Table(caption, ("system", *table.headings), rows, frozenset(marked), str(TABLES))


def _scale(results: Results) -> Table:
    rows = [(row.name, row.samples, row.mistral_samples, *cells.figures(row.values)) for row in paper.SCALE]
    marked = []
    theirs = dict(zip(("prm800k", "400k", "550k"), paper.SCALE, strict=False))
    for run, records, others, values in cells.scale_points(results):
        marked.append(len(rows))
        rows.append((f"ours: {name_of(run)}", f"{records:,}", f"{others:,}", *cells.figures(values)))
        if run.mix in theirs:
            rows.append(("difference", NOT_APPLICABLE, NOT_APPLICABLE, *cells.gaps(values, theirs[run.mix].values)))
    headers = ("model", "samples", "Mistral samples", *(bench.title for bench in BENCHMARKS))
    caption = f"Effect of scaling the Mistral data ({paper.SCALE_LABEL}). Our sizes are in training records."
    return Table(caption, headers, rows, frozenset(marked), str(TABLES))


def each_run(results: Results) -> list[Block]:
    """The main figures of every run, if some system has several."""
    if all(len(members) == 1 for members in results.systems.values()):
        return []
    rows = [
        (run.name, *cells.figures([cells.nested(results.benchmarks[b], run.name, b.figure) for b in BENCHMARKS]))
        for run in results.runs
    ]
    caption = "Every run, in percent. The suffix -s2 marks the second seed."
    return [Fold("Every run", [Table(caption, ("run", *HEADERS[1:]), rows, origin=str(TABLES))])]
