"""The report's tables of scores: ours by part of each benchmark, and the paper's with ours beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathfinder.benchmarks import paper
from pathfinder.core.runs import Run
from pathfinder.pages.page import Block, Fold, Table, Text
from pathfinder.reporting.results import (
    CONTROL,
    MISSING,
    NOT_APPLICABLE,
    Line,
    Metrics,
    Results,
    first_baselines,
    label,
    mean_over_seeds,
    name_of,
    sampled_figures,
)

_HEADLINE = (
    "Percent; in brackets the 95 % interval, by problem and, where any system was trained from several seeds, by seed. "
    "Below our systems stand the baselines to beat."
)
_RULES = (("both", "rule both"), ("pass1", "rule pass 1"))
_BEST = ("min", "product", "last", "mean")
_WAYS = {"authors": "its authors' rule", "benchmark": "the benchmark's rule"}


Value = Callable[[Metrics, str], Any]
"""A figure of a metric file by the name of its column."""


def headline(lines: Sequence[Line]) -> Table:
    """The main results, baselines among them."""
    rows = [(("baseline: " if line.is_baseline else "") + line.label, *map(str, line.cells)) for line in lines]
    headers = ("system", "ProcessBench, mean F1", "PRMBench, PRMScore", "search, mean accuracy (prm@n)")
    emphasis = frozenset(place for place, line in enumerate(lines) if not line.is_baseline)
    return Table(_HEADLINE, headers, rows, emphasis, "reports/tables.json")


def processbench(results: Results) -> list[Block]:
    """F1 of each subset under both rules, other people's PRMs, and the baselines."""
    return _by_part(
        results,
        results.processbench,
        "processbench",
        paper.PROCESSBENCH,
        _subset,
        "F1 in percent. Rule “both”: a step is wrong when its reward is under one half (the paper's algorithm 1). "
        "Rule “pass 1”: when a first-pass label is negative (the published evaluation).",
    )


def prmbench(results: Results) -> list[Block]:
    """Every class and category under both rules, other people's PRMs, and the baselines."""
    return _by_part(
        results,
        results.prmbench,
        "prmbench",
        paper.PRMBENCH,
        _class_or_category,
        "PRMScore in percent. NR non-redundancy, NCL non-circular logic, ES empirical soundness, SC step "
        "consistency, DC domain consistency, CI confidence invariance, PS prerequisite sensitivity, DR deception "
        "resistance, MS multiple solutions. Simpl., Sound. and Sens. are the means of the classes to their left: "
        "simplicity, soundness, sensitivity.",
    )


def search(results: Results) -> list[Block]:
    """Accuracy on each set: the policy alone, the random pick, the PRMs."""
    table, rows = paper.SEARCH, []
    if results.sample is not None:
        for figure in sampled_figures(results.sample):
            sets = results.sample["sets"]
            values = [_nested(sets, column, figure) for column in table.columns[:-1]]
            rows.append((figure, *cells([*values, results.sample["average"][figure]])))
    if (control := results.search.get(CONTROL)) is not None:
        rows.append(("random pick (control)", *cells([_set(control, column) for column in table.columns])))
    for members in ours(results, results.search):
        values = _row(members, results.search, _set, table.columns)
        rows.append((f"{label(members)}, guided search", *cells(values)))
        for rule in _BEST:
            values = [
                mean_of(members, results.search, ("best_of_n", "sets", column, rule)) for column in table.columns[:-1]
            ]
            values.append(mean_of(members, results.search, ("best_of_n", "average", rule)))
            if any(value is not None for value in values):
                rows.append((f"{label(members)}, best of n by {rule}", *cells(values)))
    for name, found in results.others["search"].items():
        values = [_set(found, column) for column in table.columns]
        rows.append((f"{results.titles(name)[0]}, guided search", *cells(values)))
    if not rows:
        return [Text(f"{MISSING}: run the sample, control and search stages.")]
    origin = origin_of(results.search, "search")
    return [Table("Accuracy in percent.", ("setting", *table.headings), rows, origin=origin)]


def beside_paper(results: Results, is_comparable: bool) -> list[Block]:
    """The paper's five result tables, our rows and the differences below theirs."""
    first, second = results.others["processbench"], results.others["prmbench"]
    getters: list[tuple[paper.PaperTable, Mapping[str, Metrics], Mapping[str, Metrics], Value]] = [
        (paper.PROCESSBENCH, results.processbench, first, _subset),
        (paper.PROCESSBENCH_FULL, results.processbench, first, _subset),
        (paper.PRMBENCH, results.prmbench, second, _class_or_category),
        (paper.SEARCH, results.search, results.others["search"], _set),
    ]
    tables = []
    for table, metrics, others, value_of in getters:
        rows = [(row.name, *cells(row.values)) for row in table.rows]
        marked: list[int] = []
        for members in results.systems.values():
            name = paper.ours(members[0].variant, members[0].mix)
            mine = _row(members, metrics, value_of, table.columns)
            if all(value is None for value in mine):
                continue
            marked.append(len(rows))
            rows.append((f"ours: {label(members)}", *cells(mine)))
            if (theirs := table.row(name)) is not None:
                rows.append(("difference", *_gaps(mine, theirs.values)))
        for name, found in others.items():
            called = results.titles(name)
            mine = [value_of(found, column) for column in table.columns]
            marked.append(len(rows))
            rows.append((f"measured: {called[0]}", *cells(mine)))
            if (theirs := next((row for title in called if (row := table.row(title))), None)) is not None:
                rows.append(("difference", *_gaps(mine, theirs.values)))
        caption = f"{table.caption} ({table.label})"
        tables.append(Table(caption, ("system", *table.headings), rows, frozenset(marked), "reports/tables.json"))
    tables.append(_scale(results))
    return list(tables) if is_comparable else [Fold(table.caption, [table]) for table in tables]


def scale_points(results: Results) -> list[tuple[Run, int, int, list[float | None]]]:
    """Each measured mix of the full variant: training records, Monte-Carlo ones, the three means over seeds."""
    found = []
    for members in results.systems.values():
        train = next((results.train[run.name] for run in members if run.name in results.train), None)
        if members[0].variant == "full" and train is not None and "sources" in train:
            records = sum(train["sources"].values())
            values = [
                mean_of(members, metrics, (key,))
                for metrics, key in (
                    (results.processbench, "mean_f1"),
                    (results.prmbench, "overall"),
                    (results.search, "average"),
                )
            ]
            found.append((members[0], records, records - train["sources"].get("prm800k", 0), values))
    return sorted(found, key=lambda row: row[1])


def _scale(results: Results) -> Table:
    rows = [(row.name, row.samples, row.mistral_samples, *cells(row.values)) for row in paper.SCALE]
    marked = []
    theirs = {"prm800k": paper.SCALE[0], "400k": paper.SCALE[1], "550k": paper.SCALE[2]}
    for run, records, others, values in scale_points(results):
        marked.append(len(rows))
        rows.append((f"ours: {name_of(run)}", f"{records:,}", f"{others:,}", *cells(values)))
        if run.mix in theirs:
            rows.append(("difference", NOT_APPLICABLE, NOT_APPLICABLE, *_gaps(values, theirs[run.mix].values)))
    headers = ("model", "samples", "Mistral samples", "ProcessBench", "PRMBench", "search")
    caption = f"Effect of scaling the Mistral data ({paper.SCALE_LABEL}); ours in training records"
    return Table(caption, headers, rows, frozenset(marked), "reports/tables.json")


def each_run(results: Results) -> list[Block]:
    """Every training on its own, where a system has several."""
    if all(len(members) == 1 for members in results.systems.values()):
        return []
    metrics = ((results.processbench, "mean_f1"), (results.prmbench, "overall"), (results.search, "average"))
    rows = [(run.name, *cells([found.get(run.name, {}).get(key) for found, key in metrics])) for run in results.runs]
    headers = ("run", "ProcessBench, mean F1", "PRMBench, PRMScore", "search, mean accuracy")
    table = Table("Each training, in percent. -s2 is the second seed.", headers, rows, origin="reports/tables.json")
    return [Fold("Every run", [table])]


def origin_of(metrics: Mapping[str, Metrics], folder: str) -> str:
    """The first measured run's file stands for those of all: they lie beside each other."""
    return f"metrics/{folder}/{next(iter(metrics))}.json" if metrics else f"metrics/{folder}"


def ours(results: Results, metrics: Mapping[str, Metrics] | None = None) -> list[list[Run]]:
    """The trainings of each system of which some were measured."""
    there = results.processbench if metrics is None else metrics
    return [members for members in results.systems.values() if any(run.name in there for run in members)]


def _by_part(
    results: Results,
    metrics: Mapping[str, Metrics],
    folder: str,
    table: paper.PaperTable,
    value_of: Value,
    explanation: str,
) -> list[Block]:
    rows = []
    for members in ours(results, metrics):
        for rule, said in _RULES:
            figures = {
                run.name: found.get("rules", {"both": found})[rule]
                for run in members
                if (found := metrics.get(run.name)) is not None and rule in found.get("rules", {"both": found})
            }
            if figures:
                values = _row(members, figures, value_of, table.columns)
                rows.append((f"{label(members)}, {said}", *cells(values)))
    for name, found in results.others[folder].items():
        for way, figures_of in found.get("rules", {"authors": found}).items():
            values = [value_of(figures_of, column) for column in table.columns]
            rows.append((f"{results.titles(name)[0]}, {_WAYS.get(way, way)}", *cells(values)))
    for name, found in first_baselines(metrics).items():
        values = [value_of(found, column) for column in table.columns]
        rows.append((f"baseline: {name.replace('_', ' ')}", *cells(values)))
    if not rows:
        return [Text(f"{MISSING}: run the stage that measures this.")]
    return [Table(explanation, ("system", *table.headings), rows, origin=origin_of(metrics, folder))]


def _row(
    members: Sequence[Run],
    metrics: Mapping[str, Metrics],
    value_of: Value,
    columns: Sequence[str],
) -> list[float | None]:
    """A system's figures, each the mean over its seeds."""

    def mean(column: str) -> float | None:
        return mean_over_seeds(members, metrics, lambda found: value_of(found, column))

    return [mean(column) for column in columns]


def mean_of(members: Sequence[Run], metrics: Mapping[str, Metrics], keys: Sequence[str]) -> float | None:
    """A nested figure's mean over a system's seeds."""
    return mean_over_seeds(members, metrics, lambda found: _nested(found, *keys))


def _subset(found: Metrics, column: str) -> Any:
    return found["mean_f1"] if column == "mean_f1" else _nested(found, "subsets", column, "f1")


def _class_or_category(found: Metrics, column: str) -> Any:
    if column == "overall":
        return found["overall"]
    return found["classes"].get(column, found["categories"].get(column))


def _set(found: Metrics, column: str) -> Any:
    if column == "average":
        return found["average"]
    figures = found["sets"].get(column, {})
    return next((value for key, value in figures.items() if key != "n"), None)


def _nested(found: Any, *keys: str) -> Any:
    for key in keys:
        found = (found or {}).get(key)
    return found


def _gaps(mine: Sequence[float | None], theirs: Sequence[float]) -> list[str]:
    """Ours less the paper's."""
    pairs = zip(mine, theirs, strict=True)
    return [NOT_APPLICABLE if value is None else f"{value - printed:+.1f}" for value, printed in pairs]


def cells(values: Sequence[Any]) -> list[str]:
    """Figures to one decimal place; a dash where there is none."""
    return [NOT_APPLICABLE if value is None else f"{value:.1f}" for value in values]
