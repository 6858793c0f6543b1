"""The step scores of a PRM for a whole benchmark, in chunks over one or several processes (``engines.workers``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ground.io import digest_of, remove
from pathfinder.core.params import Params, Score
from pathfinder.core.steps import Solution, StepScore
from pathfinder.engines.workers import STATE, Chunk, Job, OnDone, Work, Workers, chunk_folder
from pathfinder.models.footprint import require
from pathfinder.prm.checkpoints import model_of
from pathfinder.prm.chunks import chunks
from pathfinder.prm.opening import cards_needed, open_pathfinder
from pathfinder.prm.readings import Stop
from pathfinder.tree.passes import Mode

StopOf = Callable[[int], Stop]
"""Makes the ``stop`` of a number of solutions. A function of a module, because workers import it."""


@dataclass(frozen=True, slots=True)
class ScoreJob:
    """Scores the steps of solutions with the PRM in ``model``; a chunk's content is its solutions."""

    model: Path
    settings: Score
    preset: str
    mode: Mode
    stop_of: StopOf | None

    @contextmanager
    def open(self) -> Iterator[Work]:
        """Load the PRM or connect to its servers."""
        with open_pathfinder(self.model, self.settings, self.mode, self.preset) as scorer:

            def work(chunk: Chunk, on_done: OnDone) -> list[Any]:
                stop = self.stop_of(chunk.items) if self.stop_of is not None else None
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
) -> list[list[StepScore]]:
    """Score every step of ``solutions`` with the model of a run or an authors' checkpoint and show the progress.

    ``preset`` is a name in ``PRESETS``. A solution that is longer than the model's context has no scores. Finished
    chunks are kept until ``forget``. Raises ``DataError`` if ``run`` is neither, or if the model does not fit into
    memory.
    """
    model = model_of(run)
    job = ScoreJob(model, params.score, preset, mode, stop_of)
    identity = {"preset": preset, "mode": mode, "stops": stop_of is not None, "score": decisive(params.score)}
    identity["solutions"] = digest_of([asdict(solution) for solution in solutions])
    folder = chunk_folder(f"{benchmark}/{run}", identity, [model])
    check = partial(require, benchmark, params, {"base": model})
    with workers_of(job, params.score, check) as workers:
        return score_chunks(workers, folder, solutions, f"{benchmark} {run}", stops=stop_of is not None)


def forget(benchmark: str, name: str) -> None:
    """Delete the kept chunks of a system on a benchmark, once its results are written."""
    remove(STATE / benchmark / name)


def score_chunks(
    workers: Workers, folder: Path, solutions: Sequence[Solution], title: str, prefix: str = "", stops: bool = False
) -> list[list[StepScore]]:
    """Scores of ``solutions`` by a job whose chunks contain solutions and whose values are ``scores_to_json``."""
    parts = chunks(solutions, stops)
    content = [[solutions[index] for index in part] for part in parts]
    made = [Chunk(f"{prefix}{number:06d}", part, len(part)) for number, part in enumerate(content)]
    out: list[list[StepScore]] = [[] for _ in solutions]
    for part, values in zip(parts, workers.run(made, folder, title, "solutions"), strict=True):
        for index, value in zip(part, values, strict=True):
            out[index] = scores_from_json(value)
    return out


def workers_of(job: Job, settings: Score, check: Callable[[], None], served: bool = True) -> Workers:
    """The processes of a job that opens a PRM; those with a server (``served``) need only one."""
    if served and settings.engine == "vllm":
        return Workers(job, 1, cards_needed(settings), check)
    return Workers(job, settings.processes, 1, check)


def decisive(settings: Score) -> dict[str, Any]:
    """The settings that determine scores: neither addresses nor the number of processes."""
    served = settings.vllm.dtype if settings.engine == "vllm" else None
    return settings.model_dump(exclude={"processes", "base_url", "concurrency", "vllm"}) | {"served": served}


def scores_to_json(scores: Sequence[StepScore]) -> list[Any]:
    """``[[[label, probability] …], reward or null, redundancy or null]`` per step; equal floats after a round trip."""
    rewards = [None if math.isnan(score.reward) else score.reward for score in scores]
    return [
        [list(score.first.items()), reward, score.redundancy] for score, reward in zip(scores, rewards, strict=True)
    ]


def scores_from_json(value: Sequence[Any]) -> list[StepScore]:
    """The opposite of ``scores_to_json``."""
    return [
        StepScore(dict(first), math.nan if reward is None else reward, redundancy=redundancy)
        for first, reward, redundancy in value
    ]
