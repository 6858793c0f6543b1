"""PathFinder-PRM on whole benchmarks: ProcessBench and PRMBench by each reading, and step scores in chunks.

A step is correct by a reading if its value reaches the threshold (``core.readings``). The main figures follow the
benchmark's declared reading or, if the variant lacks it, the variant's own. Rule "official" reads the labels of the
first pass under the published prompt of PRMBench. One or several processes compute the chunks (``engines.workers``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ground.io import digest_of, remove
from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.benchmarks.evaluation import BenchmarkName, Evaluation, PRMBenchEvaluation, ProcessBenchEvaluation
from pathfinder.benchmarks.metrics import EarlyStop, Evaluated
from pathfinder.benchmarks.prmbench import READING as PRMBENCH
from pathfinder.benchmarks.processbench import READING as PROCESSBENCH
from pathfinder.benchmarks.readers import read_prmbench, read_processbench
from pathfinder.benchmarks.thresholds import sweep
from pathfinder.core.params import Params, Score
from pathfinder.core.prompts import Variant
from pathfinder.core.readings import reading_for, readings_of
from pathfinder.core.steps import Solution, StepScore, Verdicts, by_reading
from pathfinder.engines.workers import STATE, Chunk, Job, OnDone, Work, Workers, chunk_folder
from pathfinder.models.folders import open_model
from pathfinder.models.footprint import require
from pathfinder.prm.opening import cards_needed, model_of, open_pathfinder, titles_of
from pathfinder.prm.steps import Stop, chunks, preset_of
from pathfinder.tree.passes import Mode

RAW = Path("artifacts/raw")
OFFICIAL = "official"
Scores = list[list[StepScore]]
"""The scores of each solution's steps; none for a solution that is longer than the model's context."""


def readings_on(benchmark: BenchmarkName, variant: Variant) -> tuple[str, ...]:
    """The readings of a variant on a benchmark; the main figures' reading is first."""
    has = readings_of(variant)
    main = reading_for(PRMBENCH if benchmark == "prmbench" else PROCESSBENCH, has)
    return (main, *(reading for reading in ("soundness", "quality") if reading in has and reading != main))


def _probabilities(step: StepScore) -> dict[str, float]:
    """The probabilities of the first pass, by which the published runners decide."""
    return dict(step.first) if step.first else {"reward": step.reward}


def until_all(count: int) -> Stop:
    """Make the callback that stops each of ``count`` solutions once every reading found an error."""
    waiting = [{"soundness", "quality"} for _ in range(count)]

    def stop(solution: int, step: StepScore) -> bool:
        waiting[solution] -= {reading for reading in waiting[solution] if step.read(reading) < 0.5}
        return not waiting[solution]

    return stop


def evaluate_processbench(name: str, params: Params) -> str:
    """Evaluate a run or an authors' checkpoint, write predictions and metrics, and return the result as one line.

    Raises ``DataError`` if ``name`` is neither, or if the model does not fit into memory.
    """
    readings = readings_on("processbench", open_model(model_of(name)).variant)
    settings = params.processbench
    evaluation = ProcessBenchEvaluation(read_processbench(RAW / "processbench", settings.limit))
    solutions = evaluation.solutions
    stop_of = until_all if settings.early_stop else None
    scores = run_scores("processbench", name, solutions, params, stop_of, preset_of("processbench", settings.preset))
    answers = {reading: evaluation.answers(verdicts(scores, reading)) for reading in readings}
    rows = evaluation.rows(answers, [{"steps": [step.row() for step in steps]} for steps in scores])
    others: dict[str, Any] = {"preset": settings.preset, "reading": readings[0], "too_long": scores.count([])}
    others |= titles_of(name)
    if settings.early_stop:
        steps = sum(len(solution.steps) for solution in solutions)
        others["early_stop"] = EarlyStop(steps=steps, scored=sum(map(len, scores)))
    else:
        values = [[step.read(readings[0]) for step in steps] or None for steps in scores]
        others["thresholds"] = sweep(evaluation.items, values).summary()
    metrics = evaluation.metrics(answers, INTERVALS, official=evaluation.official(answers[readings[0]]), **others)
    return finish(evaluation, name, rows, metrics)


def evaluate_prmbench(name: str, params: Params) -> str:
    """Evaluate a run or a checkpoint as ``evaluate_processbench`` does; raises the same errors."""
    readings = readings_on("prmbench", open_model(model_of(name)).variant)
    settings = params.prmbench
    evaluation = PRMBenchEvaluation(read_prmbench(RAW / "prmbench", settings.limit))
    solutions = evaluation.solutions
    scores = run_scores("prmbench", name, solutions, params)
    official = run_scores(
        "prmbench", name, solutions, params, preset=preset_of("prmbench", "official"), mode=Mode.FIRST
    )
    rules = (*readings, OFFICIAL) if settings.preset == "default" else (OFFICIAL, *readings)
    answers = {
        rule: evaluation.answers(verdicts(official if rule == OFFICIAL else scores, rule, settings.threshold))
        for rule in rules
    }
    columns = [
        {"steps": [step.row() for step in steps], "steps_official": [_probabilities(step) for step in alone]}
        for steps, alone in zip(scores, official, strict=True)
    ]
    rows = evaluation.rows(answers, columns)
    others: dict[str, Any] = titles_of(name)
    metrics = evaluation.metrics(
        answers,
        INTERVALS,
        official=evaluation.official(answers[OFFICIAL]),
        preset=settings.preset,
        reading=readings[0] if settings.preset == "default" else reading_for("soundness", readings),
        too_long=scores.count([]),
        **others,
    )
    return finish(evaluation, name, rows, metrics)


def verdicts(scores: Scores, rule: str, threshold: float = 0.5) -> list[Verdicts]:
    """The verdicts on each solution's steps by a reading; "official" reads soundness, under the published prompt."""
    return [by_reading(steps, "soundness" if rule == OFFICIAL else rule, threshold) for steps in scores]


StopOf = Callable[[int], Stop]
"""Makes the ``stop`` for a number of solutions. It is a module's function, because workers import it."""


@contextmanager
def open_scoring(
    model: Path, settings: Score, preset: str, mode: Mode, stop_of: StopOf | None = None
) -> Iterator[Work]:
    """Load the PRM in ``model`` or connect to its servers; a chunk's content is its solutions."""
    with open_pathfinder(open_model(model), settings, mode, preset) as scorer:

        def work(chunk: Chunk, on_done: OnDone) -> list[Any]:
            stop = stop_of(chunk.items) if stop_of is not None else None
            return [scores_to_json(scores) for scores in scorer.score(chunk.content, on_done, stop)]

        yield work


def run_scores(
    benchmark: str,
    run: str,
    solutions: Sequence[Solution],
    params: Params,
    stop_of: StopOf | None = None,
    preset: str = "default",
    mode: Mode = Mode.BOTH,
) -> Scores:
    """Score every step of ``solutions`` with the model of a run or an authors' checkpoint and show the progress.

    ``preset`` is a name in ``PRESETS``. A solution that is longer than the model's context has no scores. Finished
    chunks are kept until ``finish``. Raises ``DataError`` if ``run`` is neither, or if the model does not fit into
    memory.
    """
    model = model_of(run)
    job = partial(open_scoring, model, params.score, preset, mode, stop_of)
    identity = {"preset": preset, "mode": mode, "stops": stop_of is not None, "score": decisive(params.score)}
    identity["solutions"] = digest_of([asdict(solution) for solution in solutions])
    folder = chunk_folder(f"{benchmark}/{run}", identity, [model])
    check = partial(require, benchmark, params, {"base": model})
    with workers_of(job, params.score, check) as workers:
        return score_chunks(workers, folder, solutions, f"{benchmark} {run}", stops=stop_of is not None)


def finish(evaluation: Evaluation[Any, Any], name: str, rows: Sequence[Mapping[str, Any]], metrics: Evaluated) -> str:
    """Write the results of a system, delete its kept chunks, and return the result as one line."""
    evaluation.write(name, rows, metrics)
    remove(STATE / evaluation.benchmark / name)
    return evaluation.headline(name, metrics)


def score_chunks(
    workers: Workers, folder: Path, solutions: Sequence[Solution], title: str, prefix: str = "", stops: bool = False
) -> Scores:
    """Scores of ``solutions`` by a job whose chunks contain solutions and whose values are ``scores_to_json``."""
    parts = chunks(solutions, stops)
    content = [[solutions[index] for index in part] for part in parts]
    made = [Chunk(f"{prefix}{number:06d}", part, len(part)) for number, part in enumerate(content)]
    out: Scores = [[] for _ in solutions]
    for part, values in zip(parts, workers.run(made, folder, title, "solutions"), strict=True):
        for index, value in zip(part, values, strict=True):
            out[index] = scores_from_json(value)
    return out


def workers_of(job: Job, settings: Score, check: Callable[[], None], served: bool = True) -> Workers:
    """The processes of a job that opens a PRM; with a server (``served``), one is enough."""
    if served and settings.engine == "vllm":
        return Workers(job, 1, cards_needed(settings), check)
    return Workers(job, settings.processes, 1, check)


def decisive(settings: Score) -> dict[str, Any]:
    """The settings that determine scores, without addresses and the number of processes."""
    served = settings.vllm.deciding if settings.engine == "vllm" else None
    return settings.model_dump(exclude={"processes", "base_url", "concurrency", "vllm"}) | {"served": served}


def scores_to_json(scores: Sequence[StepScore]) -> list[Any]:
    """``[[[label, probability] …], reward or null, redundancy or null, means]`` per step.

    Floats are equal after a round trip.
    """
    rewards = [None if math.isnan(score.reward) else score.reward for score in scores]
    return [
        [list(score.first.items()), reward, score.redundancy, score.means]
        for score, reward in zip(scores, rewards, strict=True)
    ]


def scores_from_json(value: Sequence[Any]) -> list[StepScore]:
    """The inverse of ``scores_to_json``."""
    return [
        StepScore(dict(first), math.nan if reward is None else reward, redundancy=redundancy, means=means)
        for first, reward, redundancy, means in value
    ]
