"""The rows of ``pathfinder bench``: a figure on one benchmark by one rule, its interval, and the paper's figure.

A row is about the whole benchmark ("all") or one of its subsets, classes or sets. It has the paper's figure only if
model, rule and number of items equal the paper's. Otherwise ``note`` says what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from ground.show import table
from pathfinder.benchmarks import paper, prmbench, processbench
from pathfinder.benchmarks.accuracy import by_set
from pathfinder.benchmarks.bootstrap import INTERVALS, interval
from pathfinder.benchmarks.evaluation import PRMBenchEvaluation, ProcessBenchEvaluation
from pathfinder.benchmarks.paper import SIZES
from pathfinder.benchmarks.readers import CLASSES, CORRECT, PRMBenchItem

ALL = "all"
RESULT = "bench.json"
"""The file with the rows and how they were made, in a folder of predictions."""
TABLES = {"processbench": paper.PROCESSBENCH_FULL, "prmbench": paper.PRMBENCH, "search": paper.SEARCH}
WHOLE = {"processbench": "mean_f1", "prmbench": "overall", "search": "average"}
"""The column of ``ALL`` in the paper's tables."""
_HUB = {"processbench": "Qwen/ProcessBench", "prmbench": "hitsmy/PRMBench_Preview"}
"""The data sets whose repositories on the Hub can list results."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure in percent over ``n`` items, its 95 % interval, and the paper's figure or a note why there is none."""

    benchmark: str
    rule: str
    subset: str
    figure: str
    n: int
    value: float
    low: float
    high: float
    paper: float | None = None
    note: str = ""


def eval_results(rows: Sequence[Row]) -> dict[str, str]:
    """The YAML files of a model repository's folder ``.eval_results``: each whole benchmark by its first rule.

    Source: huggingface.co/docs/hub/eval-results.
    """
    files: dict[str, str] = {}
    for row in rows:
        if row.subset == ALL and row.benchmark in _HUB and row.n == sum(SIZES[row.benchmark].values()):
            notes = f"{row.figure} in percent by {row.rule}, 95 % interval [{row.low:.1f}, {row.high:.1f}]"
            dataset = {"id": _HUB[row.benchmark], "task_id": "default"}
            entry = {"dataset": dataset, "value": round(row.value, 2), "notes": notes}
            files.setdefault(f"{row.benchmark}.yaml", yaml.safe_dump([entry], sort_keys=False))
    return files


def printed(rows: Sequence[Row]) -> Iterator[str]:
    """The rows as lines of a table; the paper's columns are left out if no row has a figure of the paper."""
    notes = list(dict.fromkeys(row.note for row in rows if row.note))
    with_paper = any(row.paper is not None for row in rows)
    yield from table([_cells(row, with_paper) for row in rows])
    if not with_paper:
        yield from (f"The paper's figures are left out: {note}." for note in notes)


def _cells(row: Row, with_paper: bool) -> dict[str, Any]:
    found = {name: getattr(row, name) for name in ("benchmark", "rule", "subset", "figure", "n")}
    found |= {"%": f"{row.value:.1f}", "95 % interval": f"[{row.low:.1f}, {row.high:.1f}]"}
    paper_ = {"paper": "" if row.paper is None else f"{row.paper:.1f}", "note": row.note}
    return found | (paper_ if with_paper else {})


@dataclass(frozen=True, slots=True)
class Paper:
    """The paper's figures for a row: the names of the system in the paper's tables, and the rule of its figures.

    ``differs`` is a further difference from the paper's input.
    """

    titles: Sequence[str] = ()
    rule: str = ""
    differs: str = ""


def judged_rows(
    evaluation: ProcessBenchEvaluation | PRMBenchEvaluation,
    rule: str,
    answers: Sequence[Any],
    paper_: Paper,
    subsets: bool,
) -> Iterator[Row]:
    """The row of the whole benchmark and, with ``subsets``, of each of its subsets or classes."""
    if isinstance(evaluation, ProcessBenchEvaluation):
        found = _processbench(evaluation, answers, subsets)
    else:
        found = _prmbench(evaluation, answers, subsets, as_published=rule == paper_.rule)
    yield from _compared(list(found), evaluation.benchmark, rule, paper_)


def search_rows(rule: str, sets: Sequence[str], values: Sequence[float], paper_: Paper, subsets: bool) -> Iterator[Row]:
    """The row of the mean accuracy of the sets and, with ``subsets``, of each; ``values`` are shares per problem."""
    found = [_accuracy(ALL, sets, values)]
    for name in dict.fromkeys(sets) if subsets else ():
        mine = [value for place, value in enumerate(values) if sets[place] == name]
        found.append(_accuracy(name, [name] * len(mine), mine))
    yield from _compared(found, "search", rule, paper_)


@dataclass(frozen=True, slots=True)
class _Found:
    subset: str
    figure: str
    n: int
    value: float
    interval: Sequence[float]
    sizes: dict[str, int]


def _compared(found: Sequence[_Found], benchmark: str, rule: str, paper_: Paper) -> Iterator[Row]:
    table = TABLES[benchmark]
    theirs = next((row for title in paper_.titles if (row := table.row(title)) is not None), None)
    published = dict(zip(table.columns, theirs.values, strict=True)) if theirs else {}
    for one in found:
        value = published.get(WHOLE[benchmark] if one.subset == ALL else one.subset)
        sizes = SIZES[benchmark]
        wanted = sizes if one.subset == ALL or benchmark == "prmbench" else {one.subset: sizes.get(one.subset, 0)}
        note = ""
        if value is None:
            note = "the paper has no figure of this system" if paper_.rule else "the paper has no such figure"
        elif one.sizes != wanted:
            have, want = sum(one.sizes.values()), sum(wanted.values())
            sizes_differ = f"{have:,} items, the paper's figure has {want:,}"
            note = sizes_differ if have != want else "subsets differ from the paper's"
        elif rule != paper_.rule:
            note = f"the paper's rule is {paper_.rule}"
        else:
            note = paper_.differs
        low, high = one.interval
        shown = None if note else value
        yield Row(benchmark, rule, one.subset, one.figure, one.n, one.value, low, high, shown, note)


def _processbench(evaluation: ProcessBenchEvaluation, answers: Sequence[Any], subsets: bool) -> Iterator[_Found]:
    pairs = list(zip(evaluation.items, answers, strict=True))
    names = processbench.subsets_of(evaluation.items)
    for subset in (ALL, *(names if subsets else ())):
        mine = [pair for pair in pairs if subset in (ALL, pair[0].subset)]
        items = [item for item, _ in mine]
        figures = processbench.with_interval(items, {item.key: answer for item, answer in mine}, INTERVALS)
        sizes = {name: sum(item.subset == name for item in items) for name in processbench.subsets_of(items)}
        figure = "mean F1" if subset == ALL else "F1"
        yield _Found(subset, figure, len(items), figures["mean_f1"], figures["interval"], sizes)


def _prmbench(
    evaluation: PRMBenchEvaluation, answers: Sequence[Any], subsets: bool, as_published: bool
) -> Iterator[_Found]:
    """PRMScores; With ``as_published``, labels past the last step count too, as in the published evaluator."""
    labels = evaluation.by_key(answers)
    items = [item for item in evaluation.items if item.classification != CORRECT]
    given = [(labels[item.idx] or ())[: None if as_published else len(item.steps)] for item in items]
    counts = np.stack([prmbench.step_counts(item, mine) for item, mine in zip(items, given, strict=True)])
    present = [name for name in CLASSES if any(item.classification == name for item in items)]
    parts: dict[str, dict[str, tuple[str, ...]]] = {ALL: {"": CLASSES}}
    if subsets:
        whole = {name: classes for name, classes in prmbench.CATEGORIES.items() if {*classes} <= {*present}}
        named = [*whole.items(), *((name, (name,)) for name in present)]
        parts |= {part: {name: (name,) for name in classes} for part, classes in named}
    for part, groups in parts.items():
        yield _prmscore(part, groups, items, counts)


def _prmscore(
    part: str, groups: Mapping[str, Sequence[str]], items: Sequence[PRMBenchItem], counts: prmbench.Counts
) -> _Found:
    """The mean over ``groups``, the classes whose counts are pooled, by the name of their score."""
    known = {name for classes in groups.values() for name in classes}
    mine = [(item, own) for item, own in zip(items, counts, strict=True) if item.classification in known]
    inside, pooled, strata = [item for item, _ in mine], dict[str, prmbench.Counts](), tuple[str, ...]()
    for name, classes in groups.items():
        by_item = (own * (item.classification in classes) for item, own in mine)
        pooled[name], strata = prmbench.by_problem(inside, by_item)

    def score(rows: npt.NDArray[np.int64]) -> Any:
        return np.mean([prmbench.score(name, own[rows].sum(-2)) for name, own in pooled.items()], axis=0)

    bounds = interval(len(strata), score, INTERVALS, strata)
    figure = float(score(np.arange(len(strata))))
    return _Found(part, "PRMScore", len(mine), figure, bounds, {ALL: len(items)})


def _accuracy(subset: str, sets: Sequence[str], values: Sequence[float]) -> _Found:
    _, average, interval = by_set(sets, values, INTERVALS)
    sizes = {name: sets.count(name) for name in dict.fromkeys(sets)}
    return _Found(subset, "accuracy", len(sets), average, interval, sizes)
