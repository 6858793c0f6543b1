"""A PRM on the benchmarks, by one call and with one form of result: a row per benchmark and decision rule.

ProcessBench and PRMBench give the rules "both" and "pass1" of a PathFinder-PRM. For a published PRM they give the rule
of its "authors" and, if the benchmark's evaluator uses it differently, that of the "benchmark". Search gives the best
of n by each rule on the solutions that the stage ``sample`` drew, next to pass@1, maj@n and pass@n. Nothing is
written; the stages write predictions and metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.benchmarks.evaluation import BenchmarkName, read_evaluation
from pathfinder.core.io import DataError, read_jsonl
from pathfinder.core.progress import Progress
from pathfinder.core.steps import PRM, Solution
from pathfinder.policy.best_of_n import best_of_n, score_samples
from pathfinder.prm import on_prmbench, rules

SAMPLES = Path("artifacts/predictions/sample.jsonl")
_FIGURES = {"processbench": "mean F1", "prmbench": "PRMScore"}
Name = Literal["processbench", "prmbench", "search"]
BENCHMARKS: dict[str, Name] = {name: name for name in get_args(Name)}
Verdicts = Iterator[tuple[str, list[list[bool] | None]]]
"""For each decision rule, whether each step of each solution is correct; ``None`` for a solution without scores."""


def parse_benchmarks(text: str) -> list[Name]:
    """Names separated by commas, each once; raises ``DataError`` for an unknown one."""
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if unknown := [name for name in names if name not in BENCHMARKS]:
        raise DataError(f"--on: unknown benchmark {', '.join(map(ascii, unknown))}; use {', '.join(BENCHMARKS)}")
    return [BENCHMARKS[name] for name in names]


def bench(prm: PRM, benchmark: Name, data: Path, limit: int = 0, system: str | None = None) -> Iterator[dict[str, Any]]:
    """Score a benchmark; ``data`` is the folder of the benchmarks' folders, ``limit`` the items per file (0: all).

    Yields a row ``{"benchmark", "rule", "figure", "value", "low", "high", "items"}`` per rule, in percent with a 95 %
    interval. ``system`` is the published PRM that ``prm`` is. Raises ``DataError`` for a bad row of the benchmark, or
    if there are no samples for search.
    """
    return _search(prm, limit) if benchmark == "search" else _judge(prm, benchmark, data / benchmark, limit, system)


def _judge(
    prm: PRM, benchmark: BenchmarkName, folder: Path, limit: int, system: str | None
) -> Iterator[dict[str, Any]]:
    evaluation = read_evaluation(benchmark, folder, limit)
    solutions = [Solution(item.id, item.problem, item.steps) for item in evaluation.items]
    for rule, verdicts in _published(prm, benchmark, solutions, system) if system else _ours(prm, benchmark, solutions):
        answers: list[Any] = evaluation.answers(verdicts)
        metrics = evaluation.summary(answers, INTERVALS)
        value = metrics[evaluation.headline_key]
        yield _row(benchmark, rule, _FIGURES[benchmark], value, metrics["interval"], len(answers))


def _ours(prm: PRM, benchmark: BenchmarkName, solutions: Sequence[Solution]) -> Verdicts:
    with _progress(benchmark, solutions) as progress:
        scores = prm.score(solutions, progress.advance)
    if benchmark == "processbench":
        for rule in rules.RULES:
            yield rule, [[rules.is_correct(step, rule) for step in steps] or None for steps in scores]
        return
    for rule in on_prmbench.RULES[:2]:  # the third needs another prompt
        yield rule, [[on_prmbench.is_correct(step, rule, 0.5) for step in steps] or None for steps in scores]


def _published(prm: PRM, benchmark: BenchmarkName, solutions: Sequence[Solution], system: str) -> Verdicts:
    from pathfinder.baselines.registry import system as system_named
    from pathfinder.baselines.scorer import BaselineScorer

    published = system_named(system)
    if not isinstance(prm, BaselineScorer):
        raise TypeError(f"{system} is not the open PRM")
    for convention in published.conventions(benchmark):
        method = published.method(benchmark, convention)
        with _progress(f"{benchmark}, {convention}", solutions) as progress:
            scores = prm.using(method).score(solutions, progress.advance)
        yield convention, [method.rule.verdicts([s.reward for s in steps]) if steps else None for steps in scores]


def _progress(title: str, solutions: Sequence[Solution]) -> Progress:
    return Progress(title, len(solutions), "solutions")


def _search(prm: PRM, limit: int) -> Iterator[dict[str, Any]]:
    if not SAMPLES.exists():
        raise DataError(f"{SAMPLES} does not exist; run the stage sample with `pathfinder run sample`")
    by_set: dict[str, list[dict[str, Any]]] = {}
    for _, row in read_jsonl(SAMPLES):
        by_set.setdefault(row["set"], []).append(row)
    samples = [row for rows in by_set.values() for row in rows[: limit or None]]
    _, figures = best_of_n(samples, score_samples(prm, samples), INTERVALS)
    for rule, value in figures["average"].items():
        yield _row("search", rule, "accuracy", value, figures["intervals"][rule], len(samples))


def _row(benchmark: str, rule: str, figure: str, value: float, interval: Sequence[float], items: int) -> dict[str, Any]:
    low, high = interval
    return {
        "benchmark": benchmark,
        "rule": rule,
        "figure": figure,
        "value": value,
        "low": low,
        "high": high,
        "items": items,
    }
