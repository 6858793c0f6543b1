"""Evaluate a published PRM on a benchmark: predictions and metrics in the form of our own runs.

The system is used by its authors' convention and, if the benchmark's evaluator uses it differently, by the evaluator's
as well. The authors' convention fills the standard keys of the predictions and the top level of the metrics; the other
one has keys ending in ``_benchmark``. A solution longer than the model's context has no prediction: ProcessBench counts
a miss, PRMBench an invalid row, and ``too_long`` counts both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pathfinder.baselines.adapter import AUTHORS, Convention, System
from pathfinder.baselines.scorer import BaselineScorer
from pathfinder.benchmarks.evaluation import BenchmarkName, ProcessBenchEvaluation, read_evaluation
from pathfinder.benchmarks.thresholds import sweep
from pathfinder.core.params import Report, Score
from pathfinder.core.progress import Progress
from pathfinder.core.prompts import FIRST_LABELS
from pathfinder.core.steps import Solution

Rewards = list[list[float] | None]
"""The rewards of each solution's steps; ``None`` for a solution longer than the model's context."""


def evaluate(
    system: System, model: Path, benchmark: BenchmarkName, data: Path, settings: Score, report: Report, limit: int = 0
) -> str:
    """Evaluate the system in ``model`` on the benchmark in ``data``, ``limit`` items per subset or class (0: all).

    Writes ``artifacts/predictions/<benchmark>/<system>.jsonl`` and ``metrics/<benchmark>/<system>.json`` and returns
    the result as one line. Raises ``DataError`` if ``model`` is not a folder of this system.
    """
    evaluation = read_evaluation(benchmark, data, limit)
    solutions = [Solution(item.id, item.problem, item.steps) for item in evaluation.items]
    methods = {convention: system.method(benchmark, convention) for convention in system.conventions(benchmark)}
    scorer = BaselineScorer(model, methods[AUTHORS], settings.dtype, settings.token_budget)
    rewards: dict[Convention, Rewards] = {}
    for convention, method in methods.items():
        title = f"{benchmark} {system.name}, {convention}"
        rewards[convention] = _score(scorer.using(method), solutions, title)
    answers: dict[str, list[Any]] = {
        convention: evaluation.answers(
            None if steps is None else methods[convention].rule.verdicts(steps) for steps in found
        )
        for convention, found in rewards.items()
    }
    rows = evaluation.rows(answers, [{"steps": _step_rows(rewards, place)} for place in range(len(solutions))])
    metrics = evaluation.metrics(answers, report)
    metrics |= {"system": system.name, "titles": list(system.titles)}
    metrics["decision"] = {convention: asdict(method.rule) for convention, method in methods.items()}
    metrics["too_long"] = {convention: found.count(None) for convention, found in rewards.items()}
    if isinstance(evaluation, ProcessBenchEvaluation):
        rule = methods[AUTHORS].rule
        judged = [None if steps is None else rule.judged(steps) for steps in rewards[AUTHORS]]
        metrics["thresholds"] = sweep(evaluation.items, judged).summary(rule.threshold)
    evaluation.write(system.name, rows, metrics)
    return evaluation.headline(system.name, metrics)


def _score(scorer: BaselineScorer, solutions: Sequence[Solution], title: str) -> Rewards:
    fitting = [place for place, solution in enumerate(solutions) if scorer.fits(solution)]
    with Progress(title, len(fitting), "solutions") as progress:
        scored = scorer.score([solutions[place] for place in fitting], on_done=progress.advance)
    rewards = {place: [score.reward for score in steps] for place, steps in zip(fitting, scored, strict=True)}
    return [rewards.get(place) for place in range(len(solutions))]


def _step_rows(rewards: Mapping[Convention, Rewards], place: int) -> list[dict[str, float | None]]:
    keys = {convention: "reward" if convention == AUTHORS else f"reward_{convention}" for convention in rewards}
    scored = {keys[convention]: steps for convention, found in rewards.items() if (steps := found[place]) is not None}
    labels: dict[str, float | None] = dict.fromkeys(FIRST_LABELS)
    return [labels | dict(zip(scored, step, strict=True)) for step in zip(*scored.values(), strict=True)]
