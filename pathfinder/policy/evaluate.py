"""A whole search stage: search every problem, grade the answers, compute the metrics (percent)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from pathfinder.benchmarks.accuracy import by_set
from pathfinder.benchmarks.grading import Grader, GradingPreset, gold_of
from pathfinder.benchmarks.readers import SearchProblem, read_search
from pathfinder.core.io import DataError
from pathfinder.core.params import Params
from pathfinder.core.steps import RoundScorer
from pathfinder.engines.journal import Journal
from pathfinder.policy.chunks import in_chunks, journal
from pathfinder.policy.policy import KeptPolicy, open_policy
from pathfinder.policy.search import search

RAW = Path("artifacts/raw/search")
POLICY = Path("artifacts/raw/models/policy")


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


def search_all(
    stage: str, score: RoundScorer, identity: dict[str, Any], models: Sequence[Path], params: Params, rejects: bool
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Search every problem of the profile's sets with the rewards of ``score`` and grade the answers.

    Returns the published script's rows, in the order of the problems, and the stage's metrics. Their figures are those
    of the grading that belongs to ``search.preset``; ``official`` and ``repaired`` hold those of each grading. Finished
    chunks are kept in a folder whose name is a digest of everything that determines them: the code of ``stage``, the
    search's parameters and, for the scores, ``identity`` (with the ``run``) and ``models``. ``rejects`` is as in
    ``search``.
    Raises ``DataError`` as ``search_preset`` does.
    """
    settings, preset = params.search, search_preset(params)
    loaded = read_search(RAW, settings.sets, settings.limit)
    chunks = journal(stage, settings.model_dump() | identity, loaded.items, models)
    with Journal(chunks / "draws.jsonl") as draws:  # keeps the samples of an interrupted chunk
        policy = KeptPolicy(open_policy(settings, POLICY), draws)
        work = partial(search, policy=policy, score=score, settings=settings, preset=preset, rejects=rejects)
        rows = in_chunks(loaded.items, settings.batch_size, chunks, work, f"search {identity['run']}")
        draws.path.unlink()
    with Grader() as grader:
        right = {preset: _grade(grader, loaded.items, rows, preset)}
        failures = grader.failures.copy()
        right |= {
            other: _grade(grader, loaded.items, rows, other) for other in get_args(GradingPreset) if other != preset
        }
    for row, correct in zip(rows, right[preset], strict=True):
        row["correct"] = correct
    sets = [row["set"] for row in rows]
    gradings = {name: _accuracies(sets, verdicts, params) for name, verdicts in right.items()}
    details = _details(rows, settings.batch_size) | {
        "defects": loaded.defects,
        "grading_failures": dict(failures),
        "not_graded": failures.total(),
    }
    return rows, loaded.accounting() | gradings[preset] | gradings | {"preset": settings.preset, "details": details}


def _grade(
    grader: Grader, problems: Sequence[SearchProblem], rows: Sequence[dict[str, Any]], preset: GradingPreset
) -> list[bool]:
    return [
        grader.is_right(gold_of(problem.set, problem.key, preset), row["pred_answer"], preset)
        for problem, row in zip(problems, rows, strict=True)
    ]


def _accuracies(sets: list[str], right: Sequence[bool], params: Params) -> dict[str, Any]:
    means, average, interval = by_set(sets, [float(correct) for correct in right], params.report)
    table = {name: {f"prm@{params.search.n}": mean, "n": sets.count(name)} for name, mean in means.items()}
    return {"sets": table, "average": average, "interval": interval}


def _details(rows: list[dict[str, Any]], batch_size: int) -> dict[str, Any]:
    rounds = [entry for row in rows for entry in row["iteration_history"]]
    chunks = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    return {
        # the rounds of a problem run one after another; problems that advance together share a call
        "policy_calls": sum(max(row["rounds"] for row in chunk) for chunk in chunks),
        "policy_calls_one_problem_at_a_time": sum(row["rounds"] for row in rows),
        "finished": sum(row["finished"] for row in rows),
        "without_step": sum(not row["final_steps"] for row in rows),
        "without_answer": sum(row["pred_answer"] is None for row in rows),
        "rounds": len(rounds),
        "rounds_without_choice": sum(entry["chosen_step"] is None for entry in rounds),
        "candidates": sum(len(entry["candidates_info"]) for entry in rounds),
        "candidates_rejected": sum("rejected" in c for entry in rounds for c in entry["candidates_info"]),
    }
