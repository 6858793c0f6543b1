"""Evaluate a published PRM on a benchmark: predictions and metrics in the form of our own runs.

The system is used by its authors' convention and, if the benchmark's evaluator has a different one, by that as well.
The authors' convention fills the standard keys of the predictions and the top level of the metrics; the evaluator's
convention has keys ending in ``_benchmark``. A solution longer than the model's context has no prediction: ProcessBench
counts a miss, PRMBench an invalid row, and ``too_long`` counts both. PRMBench's evaluator cuts the prompt instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ground.io import digest_of
from pathfinder.baselines.adapter import AUTHORS, Convention, Method, System
from pathfinder.baselines.scorer import BaselineScorer
from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.benchmarks.evaluation import BenchmarkName, ProcessBenchEvaluation, read_evaluation
from pathfinder.benchmarks.thresholds import sweep
from pathfinder.core.params import Params, Score
from pathfinder.core.prompts import FIRST_LABELS
from pathfinder.core.readings import OWN
from pathfinder.core.steps import StepScore
from pathfinder.engines.workers import Chunk, OnDone, Work, chunk_folder
from pathfinder.models.folders import open_model
from pathfinder.models.footprint import require
from pathfinder.prm.evaluate import Scores, decisive, finish, score_chunks, scores_to_json, workers_of


@contextmanager
def open_baseline(system: System, model: Path, benchmark: BenchmarkName, settings: Score) -> Iterator[Work]:
    """Load the published PRM in ``model``; a chunk's content is its solutions, its name starts with the convention."""
    methods = _methods(system, benchmark)
    scorer = BaselineScorer(open_model(model), methods[AUTHORS], settings.dtype, settings.token_budget)
    scorers = {convention: scorer.using(method) for convention, method in methods.items()}

    def work(chunk: Chunk, on_done: OnDone) -> list[Any]:
        (convention,) = (name for name in scorers if chunk.name.startswith(f"{name}-"))
        return [scores_to_json(scores) for scores in scorers[convention].score(chunk.content, on_done)]

    yield work


def evaluate(system: System, model: Path, benchmark: BenchmarkName, data: Path, params: Params, limit: int = 0) -> str:
    """Evaluate the system in ``model`` on the benchmark in ``data``, ``limit`` items per subset or class (0: all).

    Writes ``artifacts/predictions/<benchmark>/<system>.jsonl`` and ``metrics/<benchmark>/<system>.json`` and returns
    the result as one line. Raises ``DataError`` if ``model`` is not a folder of this system.
    """
    settings = params.score
    evaluation = read_evaluation(benchmark, data, limit)
    solutions = evaluation.solutions
    methods = _methods(system, benchmark)
    identity = {"score": decisive(settings), "solutions": digest_of([asdict(solution) for solution in solutions])}
    folder = chunk_folder(f"{benchmark}/{system.name}", identity, [model])
    scores: dict[Convention, Scores] = {}
    check = partial(require, "baseline", params, {"base": model})
    job = partial(open_baseline, system, model, benchmark, settings)
    with workers_of(job, settings, check, served=False) as workers:
        for convention in methods:
            title = f"{benchmark} {system.name}, {convention}"
            scores[convention] = score_chunks(workers, folder, solutions, title, f"{convention}-")
    answers: dict[str, list[Any]] = {
        convention: evaluation.answers(map(methods[convention].rule.verdicts, found))
        for convention, found in scores.items()
    }
    columns = [
        {"steps": _step_rows({convention: found[place] for convention, found in scores.items()}, len(solution.steps))}
        for place, solution in enumerate(solutions)
    ]
    rows = evaluation.rows(answers, columns)
    others: dict[str, Any] = {"system": system.name, "titles": list(system.titles)}
    others["decision"] = {convention: asdict(method.rule) for convention, method in methods.items()}
    judges_redundancy = any(step.redundancy is not None for steps in scores[AUTHORS] for step in steps)
    others |= evaluation.both_rules(answers[list(methods)[-1]], INTERVALS)
    if "benchmark" in answers:
        others["official"] = evaluation.official(answers["benchmark"])
    others["reading"] = "soundness" if judges_redundancy else OWN  # of the authors' rule, which has the main figures
    others["too_long"] = {convention: found.count([]) for convention, found in scores.items()}
    if isinstance(evaluation, ProcessBenchEvaluation):
        rule = methods[AUTHORS].rule
        judged = [rule.judged([step.reward for step in steps]) or None for steps in scores[AUTHORS]]
        others["thresholds"] = sweep(evaluation.items, judged).summary(rule.threshold)
    return finish(evaluation, system.name, rows, evaluation.metrics(answers, INTERVALS, "rules", **others))


def _methods(system: System, benchmark: BenchmarkName) -> dict[Convention, Method]:
    return {convention: system.method(benchmark, convention) for convention in system.conventions(benchmark)}


def _step_rows(scores: Mapping[Convention, Sequence[StepScore]], steps: int) -> list[dict[str, float | None]]:
    """A row per step; a convention that reads fewer places has no figures for the last steps."""
    rows: list[dict[str, float | None]] = [dict.fromkeys(FIRST_LABELS) for _ in range(steps)]
    for convention, found in scores.items():
        suffix = "" if convention == AUTHORS else f"_{convention}"
        for row, score in zip(rows, found, strict=False):
            row[f"reward{suffix}"] = score.reward
            if score.redundancy is not None:
                row[f"redundancy{suffix}"] = score.redundancy
    return rows if any(scores.values()) else []
