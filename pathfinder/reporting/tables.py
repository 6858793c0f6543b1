"""The report's tables of scores: our systems by part of each benchmark, and the paper's tables with our rows."""

from __future__ import annotations

from collections.abc import Sequence

from pathfinder.benchmarks import paper
from pathfinder.pages.page import Block, Fold, Table, Text
from pathfinder.reporting.cells import (
    Value,
    cells,
    class_or_category,
    gaps,
    mean_of,
    measured,
    nested,
    origin_of,
    row_of,
    scale_points,
    search_set,
    subset,
)
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
_VALUES: dict[Benchmark, Value] = {PROCESSBENCH: subset, PRMBENCH: class_or_category, SEARCH: search_set}


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
    table, found, rows = paper.SEARCH, results.benchmarks[SEARCH], []
    *sets, _ = table.columns
    if (sample := results.sample) is not None:
        for figure in sampled_figures(sample):
            values = [*(nested(sample["sets"], column, figure) for column in sets), sample["average"][figure]]
            rows.append((figure, *cells(values)))
    if (control := found.get(CONTROL)) is not None:
        rows.append(("random pick (control)", *cells([search_set(control, column) for column in table.columns])))
    for members in measured(results, SEARCH):
        rows.append((f"{label(members)}, guided search", *cells(row_of(members, found, search_set, table.columns))))
        for rule in _BEST:
            keys = [*(("sets", column, rule) for column in sets), ("average", rule)]
            best = [mean_of(members, found, "best_of_n", *path) for path in keys]
            if any(value is not None for value in best):
                rows.append((f"{label(members)}, best of n by {rule}", *cells(best)))
    for name, metrics in results.published[SEARCH].items():
        values = [search_set(metrics, column) for column in table.columns]
        rows.append((f"{results.titles(name)[0]}, guided search", *cells(values)))
    if not rows:
        return [Text(f"{MISSING}: run the sample, control and search stages.")]
    return [Table("Accuracy in percent.", ("setting", *table.headings), rows, origin=origin_of(results, SEARCH))]


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
    rows: list[tuple[str, ...]] = [(row.name, *cells(row.values)) for row in table.rows]
    marked: list[int] = []

    def add(name: str, values: Sequence[float | None], titles: Sequence[str]) -> None:
        marked.append(len(rows))
        rows.append((name, *cells(values)))
        if (theirs := next(filter(None, map(table.row, titles)), None)) is not None:
            rows.append(("difference", *gaps(values, theirs.values)))

    value_of = _VALUES[benchmark]
    for members in results.systems.values():
        values = row_of(members, results.benchmarks[benchmark], value_of, table.columns)
        if any(value is not None for value in values):
            add(f"ours: {label(members)}", values, [paper.ours(members[0].variant, members[0].mix)])
    for name, metrics in results.published[benchmark].items():
        titles = results.titles(name)
        add(f"measured: {titles[0]}", [value_of(metrics, column) for column in table.columns], titles)
    caption = f"{table.caption} ({table.label})"
    return Table(caption, ("system", *table.headings), rows, frozenset(marked), str(TABLES))


def _scale(results: Results) -> Table:
    rows = [(row.name, row.samples, row.mistral_samples, *cells(row.values)) for row in paper.SCALE]
    marked = []
    theirs = dict(zip(("prm800k", "400k", "550k"), paper.SCALE, strict=False))
    for run, records, others, values in scale_points(results):
        marked.append(len(rows))
        rows.append((f"ours: {name_of(run)}", f"{records:,}", f"{others:,}", *cells(values)))
        if run.mix in theirs:
            rows.append(("difference", NOT_APPLICABLE, NOT_APPLICABLE, *gaps(values, theirs[run.mix].values)))
    headers = ("model", "samples", "Mistral samples", *(bench.title for bench in BENCHMARKS))
    caption = f"Effect of scaling the Mistral data ({paper.SCALE_LABEL}). Our sizes are in training records."
    return Table(caption, headers, rows, frozenset(marked), str(TABLES))


def each_run(results: Results) -> list[Block]:
    """The main figures of every run, if some system has several."""
    if all(len(members) == 1 for members in results.systems.values()):
        return []
    rows = [
        (run.name, *cells([results.benchmarks[bench].get(run.name, {}).get(bench.figure) for bench in BENCHMARKS]))
        for run in results.runs
    ]
    caption = "Every run, in percent. The suffix -s2 marks the second seed."
    return [Fold("Every run", [Table(caption, ("run", *HEADERS[1:]), rows, origin=str(TABLES))])]


def _by_part(results: Results, benchmark: Benchmark, table: paper.PaperTable, explanation: str) -> list[Block]:
    found, value_of, rows = results.benchmarks[benchmark], _VALUES[benchmark], []
    for members in measured(results, benchmark):
        for rule, title in _RULES.items():
            rules = {run.name: nested(found, run.name, "rules") or {"both": found.get(run.name)} for run in members}
            figures = {name: given[rule] for name, given in rules.items() if given.get(rule) is not None}
            if figures:
                rows.append((f"{label(members)}, {title}", *cells(row_of(members, figures, value_of, table.columns))))
    others = [
        (f"{results.titles(name)[0]}, {_PUBLISHED_RULES.get(rule, rule)}", figures)
        for name, metrics in results.published[benchmark].items()
        for rule, figures in metrics.get("rules", {"authors": metrics}).items()
    ]
    others += [(f"baseline: {name.replace('_', ' ')}", metrics) for name, metrics in baselines_of(found).items()]
    rows += [(name, *cells([value_of(metrics, column) for column in table.columns])) for name, metrics in others]
    if not rows:
        return [Text(f"{MISSING}: run the {benchmark.key} stage.")]
    return [Table(explanation, ("system", *table.headings), rows, origin=origin_of(results, benchmark))]
