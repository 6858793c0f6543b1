"""A baseline through a benchmark: predictions and metrics in the shape of our own runs.

Each way to use the system is measured: its authors' (``prediction``, ``step_level_validity_labels``, the figures at the
top of the metrics) and, where the benchmark's evaluator has another, that one too (``…_benchmark``). A solution that is
longer than the model's context has no prediction: it counts as missed on ProcessBench, as invalid on PRMBench, and in
``too_long``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pathfinder.baselines.adapter import AUTHORS, Preset, System
from pathfinder.baselines.scorer import BaselineScorer
from pathfinder.benchmarks import prmbench, processbench
from pathfinder.benchmarks.readers import Loaded, PRMBenchItem, ProcessBenchItem, read_prmbench, read_processbench
from pathfinder.benchmarks.thresholds import sweep
from pathfinder.core.io import write_json, write_jsonl
from pathfinder.core.params import Report, Score
from pathfinder.core.progress import Progress
from pathfinder.prm.scoring import Solution

Benchmark = Literal["processbench", "prmbench"]
HEADLINES: dict[Benchmark, str] = {"processbench": "mean_f1", "prmbench": "overall"}
PREDICTIONS, METRICS = Path("artifacts/predictions"), Path("metrics")
_Rewards = dict[Preset, list[list[float] | None]]
"""Per way and solution the steps' rewards; None for a solution that is longer than the model's context."""


def ways(system: System, benchmark: Benchmark) -> tuple[Preset, ...]:
    """The presets that differ on this benchmark, the authors' own first."""
    return (AUTHORS, "benchmark") if benchmark in system.methods else (AUTHORS,)


def evaluate(
    system: System, model: Path, benchmark: Benchmark, data: Path, settings: Score, report: Report, limit: int = 0
) -> dict[str, Any]:
    """Measure the system of ``model`` on the benchmark in ``data`` (``limit`` items a file; 0: all).

    Writes ``artifacts/predictions/<benchmark>/<system>.jsonl`` and ``metrics/<benchmark>/<system>.json``; returns the
    metrics, in percent.
    """
    if benchmark == "processbench":
        loaded = read_processbench(data, limit)
        solutions = [Solution(item.id, item.problem, item.steps) for item in loaded.items]
        rewards = _score(system, model, benchmark, solutions, settings)
        rows, metrics = _processbench(system, loaded, rewards, report)
    else:
        classified = read_prmbench(data, limit)
        solutions = [Solution(item.idx, item.problem, item.steps) for item in classified.items]
        rewards = _score(system, model, benchmark, solutions, settings)
        rows, metrics = _prmbench(system, classified, rewards, report)
    decision = {way: asdict(system.method(benchmark, way).rule) for way in rewards}
    metrics |= {"system": system.name, "titles": list(system.titles), "decision": decision}
    metrics["too_long"] = {way: found.count(None) for way, found in rewards.items()}
    write_jsonl(PREDICTIONS / benchmark / f"{system.name}.jsonl", rows)
    write_json(METRICS / benchmark / f"{system.name}.json", metrics)
    return metrics


def headline(system: System, benchmark: Benchmark, metrics: dict[str, Any]) -> str:
    """The main figure of each way, as one line."""
    figures = ", ".join(f"{way} {found[HEADLINES[benchmark]]:.1f}" for way, found in metrics["rules"].items())
    return f"{benchmark} {system.name}: {figures}"


def _score(
    system: System, model: Path, benchmark: Benchmark, solutions: Sequence[Solution], settings: Score
) -> _Rewards:
    found: _Rewards = {}
    loaded = BaselineScorer(model, system.methods[AUTHORS], settings.dtype, settings.token_budget)
    for way in ways(system, benchmark):
        scorer = loaded.using(system.method(benchmark, way))
        fitting = [place for place, solution in enumerate(solutions) if scorer.fits(solution)]
        with Progress(f"{benchmark} {system.name}, {way}", len(fitting), "solutions") as progress:
            scored = scorer.score([solutions[place] for place in fitting], on_done=progress.advance)
        rewards = {place: [s.reward for s in steps] for place, steps in zip(fitting, scored, strict=True)}
        found[way] = [rewards.get(place) for place in range(len(solutions))]
    return found


def _processbench(
    system: System, loaded: Loaded[ProcessBenchItem], rewards: _Rewards, report: Report
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    items = loaded.items
    keys = [(item.subset, item.id) for item in items]
    places = {
        way: [_first(_sound(system, "processbench", way, steps)) for steps in found] for way, found in rewards.items()
    }
    rules = {
        way: processbench.with_interval(items, dict(zip(keys, found, strict=True)), report)
        for way, found in places.items()
    }
    rows = [
        {"subset": item.subset, "id": item.id}
        | {_named("prediction", way): places[way][number] for way in rewards}
        | {"label": item.label, "steps": _steps(rewards, number)}
        for number, item in enumerate(items)
    ]
    metrics = loaded.accounting() | rules[AUTHORS]
    metrics |= {"rules": rules, "baselines": processbench.baselines(items, report), "defects": loaded.defects}
    metrics["generators"] = processbench.by_generator(items, dict(zip(keys, places[AUTHORS], strict=True)))
    rule = system.method("processbench", AUTHORS).rule
    judged = [None if steps is None else rule.judged(steps) for steps in rewards[AUTHORS]]
    metrics["thresholds"] = sweep(items, judged).summary(rule.threshold)
    return rows, metrics


def _prmbench(
    system: System, loaded: Loaded[PRMBenchItem], rewards: _Rewards, report: Report
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    items = loaded.items
    labels = {way: [_sound(system, "prmbench", way, steps) for steps in found] for way, found in rewards.items()}
    rules = {
        way: prmbench.with_interval(items, {i.idx: mine for i, mine in zip(items, found, strict=True)}, report)
        for way, found in labels.items()
    }
    rows = [
        {
            "idx": item.idx,
            "classification": item.classification,
            "scores": {
                _named("step_level_validity_labels", way): found[number]
                for way, found in labels.items()
                if found[number] is not None
            },
            "steps": _steps(rewards, number),
        }
        | ({"validity": False} if labels[AUTHORS][number] is None else {})
        for number, item in enumerate(items)
    ]
    metrics = loaded.accounting() | rules[AUTHORS]
    metrics |= {"rules": rules, "baselines": prmbench.baselines(items, report), "defects": loaded.defects}
    return rows, metrics


def _sound(system: System, benchmark: Benchmark, way: Preset, steps: list[float] | None) -> list[bool] | None:
    return None if steps is None else system.method(benchmark, way).rule.sound(steps)


def _first(verdicts: list[bool] | None) -> int | None:
    if verdicts is None:
        return None
    return verdicts.index(False) if False in verdicts else processbench.NO_ERROR


def _named(key: str, way: Preset) -> str:
    return key if way == AUTHORS else f"{key}_{way}"


def _steps(rewards: _Rewards, number: int) -> list[dict[str, float | None]]:
    nothing: dict[str, float | None] = {"math": None, "consistency": None, "error_free": None}
    scored = {way: steps for way in rewards if (steps := rewards[way][number]) is not None}
    return [
        nothing | {_named("reward", way): reward for way, reward in zip(scored, step, strict=True)}
        for step in zip(*scored.values(), strict=True)
    ]
