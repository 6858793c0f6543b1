"""The report's tables of scores: ours by part of each benchmark, and the paper's with ours beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.core import paper
from stages.core.page import Block, Table, Text
from stages.core.results import MISSING, NAMES, NOT_APPLICABLE, VARIANTS, Line, Metrics, Results, sampled_figures

_HEADLINE = "Percent; in brackets the bootstrap interval by problem. Below our variants stand the baselines to beat."


def headline(lines: Sequence[Line]) -> Table:
    """The main results, baselines among them."""
    rows = [(("baseline: " if line.is_baseline else "") + line.name, *map(str, line.cells)) for line in lines]
    headers = ("system", "ProcessBench, mean F1", "PRMBench, PRMScore", "search, mean accuracy (prm@n)")
    return Table(_HEADLINE, headers, rows, frozenset(place for place, line in enumerate(lines) if not line.is_baseline))


def processbench(results: Results) -> list[Block]:
    """F1 of each subset under both rules, and the baselines."""
    return _by_part(
        results.processbench,
        paper.PROCESSBENCH,
        _subset,
        "F1 in percent. Rule “both”: a step is wrong when its reward is under one half (the paper's algorithm 1). "
        "Rule “pass 1”: when a first-pass label is negative (the published evaluation).",
    )


def prmbench(results: Results) -> list[Block]:
    """Every class and category under both rules, and the baselines."""
    return _by_part(
        results.prmbench,
        paper.PRMBENCH,
        _class_or_category,
        "PRMScore in percent. NR non-redundancy, NCL non-circular logic, ES empirical soundness, SC step "
        "consistency, DC domain consistency, CI confidence invariance, PS prerequisite sensitivity, DR deception "
        "resistance, MS multiple solutions.",
    )


def search(results: Results) -> list[Block]:
    """Accuracy on each set: the policy alone, the random pick, the PRMs."""
    table, rows = paper.SEARCH, []
    if results.sample is not None:
        for figure in sampled_figures(results.sample):
            sets = results.sample["sets"]
            values = [_nested(sets, column, figure) for column in table.columns[:-1]]
            rows.append((figure, *_cells([*values, results.sample["average"][figure]])))
    for name in ("random", *VARIANTS):
        if (found := results.search.get(name)) is not None:
            values = [_accuracy(found, column) for column in table.columns[:-1]]
            label = "random pick (control)" if name == "random" else NAMES[name]
            rows.append((label, *_cells([*values, found["average"]])))
    if not rows:
        return [Text(f"{MISSING}: run the sample, control and search stages.")]
    return [Table("Accuracy in percent.", ("setting", *table.headings), rows)]


def beside_paper(results: Results, profile: str) -> list[Block]:
    """The paper's five result tables, our rows and the differences below theirs."""
    getters: list[tuple[paper.PaperTable, Mapping[str, Metrics], Callable[[Metrics, str], Any]]] = [
        (paper.PROCESSBENCH, results.processbench, _subset),
        (paper.PROCESSBENCH_FULL, results.processbench, _subset),
        (paper.PRMBENCH, results.prmbench, _class_or_category),
        (paper.SEARCH, results.search, _set),
    ]
    blocks: list[Block] = []
    for table, metrics, value_of in getters:
        rows = [(row.name, *_cells(row.values)) for row in table.rows]
        marked: list[int] = []
        for variant in VARIANTS:
            theirs = table.row(paper.ours(variant, profile))
            found = metrics.get(variant)
            mine = [value_of(found, column) if found else None for column in table.columns]
            marked.append(len(rows))
            rows.append((f"reproduced: {paper.ours(variant, profile)}", *_cells(mine)))
            if theirs is not None and found is not None:
                gaps = [None if m is None else m - t for m, t in zip(mine, theirs.values, strict=True)]
                rows.append(("difference", *(NOT_APPLICABLE if gap is None else f"{gap:+.1f}" for gap in gaps)))
        blocks.append(Table(f"{table.caption} ({table.label})", ("system", *table.headings), rows, frozenset(marked)))
    return [*blocks, _scale(results, profile)]


def _scale(results: Results, profile: str) -> Table:
    rows = [(row.name, row.samples, row.mistral_samples, *_cells(row.values)) for row in paper.SCALE]
    build = results.stages["build"]
    sources = (build or {}).get("train", {}).get("sources", {})
    mine = [
        (metrics.get("full") or {}).get(key)
        for metrics, key in (
            (results.processbench, "mean_f1"),
            (results.prmbench, "overall"),
            (results.search, "average"),
        )
    ]
    records = f"{sum(sources.values()):,}" if sources else MISSING
    other = f"{sum(count for name, count in sources.items() if name != 'prm800k'):,}" if sources else MISSING
    rows.append((f"reproduced: profile {profile}", records, other, *_cells(mine)))
    headers = ("model", "samples", "Mistral samples", "ProcessBench", "PRMBench", "search")
    return Table(f"Effect of scaling the Mistral data ({paper.SCALE_LABEL})", headers, rows, frozenset([len(rows) - 1]))


def _by_part(
    metrics: Mapping[str, Metrics],
    table: paper.PaperTable,
    value_of: Callable[[Metrics, str], Any],
    explanation: str,
) -> list[Block]:
    rows = []
    for variant, found in metrics.items():
        for rule, figures in found.get("rules", {"both": found}).items():
            values = [value_of(figures, column) for column in table.columns]
            rows.append((f"{NAMES[variant]}, rule {rule.replace('pass1', 'pass 1')}", *_cells(values)))
    for name, figures in next((found["baselines"] for found in metrics.values() if "baselines" in found), {}).items():
        values = [value_of(figures, column) for column in table.columns]
        rows.append((f"baseline: {name.replace('_', ' ')}", *_cells(values)))
    if not rows:
        return [Text(f"{MISSING}: run the stage that measures this.")]
    return [Table(explanation, ("system", *table.headings), rows)]


def _subset(found: Metrics, column: str) -> Any:
    return found["mean_f1"] if column == "mean_f1" else _nested(found, "subsets", column, "f1")


def _class_or_category(found: Metrics, column: str) -> Any:
    if column == "overall":
        return found["overall"]
    return found["classes"].get(column, found["categories"].get(column))


def _set(found: Metrics, column: str) -> Any:
    return found["average"] if column == "average" else _accuracy(found, column)


def _accuracy(found: Metrics, column: str) -> Any:
    figures = found["sets"].get(column, {})
    return next((value for key, value in figures.items() if key != "n"), None)


def _nested(found: Any, *keys: str) -> Any:
    for key in keys:
        found = (found or {}).get(key)
    return found


def _cells(values: Sequence[Any]) -> list[str]:
    return [NOT_APPLICABLE if value is None else f"{value:.1f}" for value in values]
