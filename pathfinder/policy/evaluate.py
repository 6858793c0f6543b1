"""A whole search stage: search every problem, grade the answers, compute the metrics (percent)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from ground.io import DataError
from pathfinder.benchmarks.accuracy import by_set
from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.benchmarks.grading import Grader, GradingPreset, gold_of
from pathfinder.benchmarks.readers import Loaded, SearchProblem, read_search
from pathfinder.core.params import Params
from pathfinder.engines.journal import Journal
from pathfinder.engines.workers import Chunk, OnDone, Work, Workers, chunk_folder, cut
from pathfinder.policy.best_of_n import score_samples
from pathfinder.policy.metrics import Details, Search
from pathfinder.policy.policy import POLICY, KeptPolicy, deciding, open_policy
from pathfinder.policy.search import search

RAW = Path("artifacts/raw/search")
SEARCH, BEST_OF_N = "search", "best_of_n"
"""The two kinds of chunks, named by the first part of their content."""


@contextmanager
def open_search(
    params: Params,
    guide: Callable[[], AbstractContextManager[Any]],
    urls: Sequence[str],
    rejects: bool,
    folder: Path = POLICY,
) -> Iterator[Work]:
    """Load the PRM that ``guide`` opens (or the control) and, at the first problem, the policy in ``folder``.

    The work searches problems (content ``SEARCH``, folder of draws, problems) and scores samples (``BEST_OF_N``, rows).
    ``urls`` are the policy's servers, if it has any; ``rejects`` is as in ``search``.
    """
    policy = cache(lambda: open_policy(params.search, folder, urls))
    with guide() as prm:

        def work(chunk: Chunk, _: OnDone) -> list[dict[str, Any]]:
            if chunk.content[0] == BEST_OF_N:
                return score_samples(prm, chunk.content[1])
            _, draws, problems = chunk.content
            with Journal(draws / f"{chunk.name}.draws.jsonl") as journal:  # keeps the samples of an interrupted chunk
                kept = KeptPolicy(policy(), journal)
                return search(problems, kept, prm.rounds(), params.search, search_preset(params), rejects)

        yield work


def search_preset(params: Params) -> GradingPreset:
    """The rules of the search and its grading; raises ``DataError`` if they do not allow the search strategy."""
    if params.search.preset != "official":
        return "repaired"
    if params.search.strategy != "greedy":
        raise DataError(
            f"params.yaml: search.strategy is {params.search.strategy}, expected greedy for "
            "search.preset official; change one of the two"
        )
    return "official"


def read_problems(params: Params) -> Loaded[SearchProblem]:
    """The problems of the profile's sets; raises ``DataError`` as ``read_search`` does."""
    return read_search(RAW, params.search.sets, params.search.limit)


def search_all(
    stage: str,
    loaded: Loaded[SearchProblem],
    workers: Workers,
    identity: dict[str, Any],
    models: Sequence[Path],
    params: Params,
) -> tuple[list[dict[str, Any]], Search]:
    """Search every problem with workers whose job is ``open_search`` and grade the answers.

    Returns the published script's rows, in the order of the problems, and the stage's metrics. Their main figures
    follow the grading of ``search.preset``; ``official`` and ``repaired`` have the figures of each grading. Finished
    chunks are kept in a folder whose name is a digest of everything that determines them: the code, the
    search's parameters and, for the scores, ``identity`` (with the ``run``) and ``models``. Raises ``DataError`` as
    ``search_preset`` does.
    """
    settings, preset = params.search, search_preset(params)
    content = deciding(settings) | identity | {"problems": identity_of(loaded.items)}
    folder = chunk_folder(stage, content, models)
    chunks = [replace(part, content=(SEARCH, folder, part.content)) for part in cut(loaded.items, settings.batch_size)]
    found = workers.run(chunks, folder, f"search {identity['run']}")
    rows = [row for part in found for row in part]
    with Grader() as grader:
        right = {preset: _grade(grader, loaded.items, rows, preset)}
        failures = grader.failures.copy()
        right |= {
            other: _grade(grader, loaded.items, rows, other) for other in get_args(GradingPreset) if other != preset
        }
    for row, correct in zip(rows, right[preset], strict=True):
        row["correct"] = correct
    sets = [row["set"] for row in rows]
    gradings: dict[str, Any] = {name: _accuracies(sets, verdicts, params) for name, verdicts in right.items()}
    details = Details(
        **_details(rows, settings.batch_size),
        defects=loaded.defects,
        grading_failures=dict(failures),
        not_graded=failures.total(),
    )
    others = {"preset": settings.preset, "details": details} | loaded.accounting()
    return rows, Search(**gradings[preset], **gradings, **others)


def score_all(
    samples: Sequence[dict[str, Any]], workers: Workers, folder: Path, batch_size: int, title: str
) -> list[dict[str, Any]]:
    """The rows of ``score_samples`` for the whole solutions of ``samples``, by workers whose job is ``open_search``."""
    chunks = [replace(part, content=(BEST_OF_N, part.content)) for part in cut(samples, batch_size)]
    return [row for part in workers.run(chunks, folder, title) for row in part]


def identity_of(problems: Sequence[SearchProblem]) -> list[list[str]]:
    """The identity of the problems of a search or of samples, as JSON."""
    return [[problem.set, problem.id, problem.problem, problem.key] for problem in problems]


def _grade(
    grader: Grader, problems: Sequence[SearchProblem], rows: Sequence[dict[str, Any]], preset: GradingPreset
) -> list[bool]:
    return [
        grader.is_right(gold_of(problem.set, problem.key, preset), row["pred_answer"], preset)
        for problem, row in zip(problems, rows, strict=True)
    ]


def _accuracies(sets: list[str], right: Sequence[bool], params: Params) -> dict[str, Any]:
    means, average, interval = by_set(sets, [float(correct) for correct in right], INTERVALS)
    table = {name: {f"prm@{params.search.n}": mean, "n": sets.count(name)} for name, mean in means.items()}
    return {"sets": table, "average": average, "interval": interval}


def _details(rows: list[dict[str, Any]], batch_size: int) -> dict[str, int]:
    rounds = [entry for row in rows for entry in row["iteration_history"]]
    chunks = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    return {
        # a problem's rounds run one after the other; problems that advance together share a call
        "policy_calls": sum(max(row["rounds"] for row in chunk) for chunk in chunks),
        "policy_calls_one_problem_at_a_time": sum(row["rounds"] for row in rows),
        "finished": sum(row["finished"] for row in rows),
        "without_step": sum(not row["final_steps"] for row in rows),
        "too_long": sum("too_long" in row for row in rows),
        "without_answer": sum(row["pred_answer"] is None for row in rows),
        "rounds": len(rounds),
        "rounds_without_choice": sum(entry["chosen_step"] is None for entry in rounds),
        "candidates": sum(len(entry["candidates_info"]) for entry in rounds),
        "candidates_rejected": sum("rejected" in c for entry in rounds for c in entry["candidates_info"]),
    }
