"""Whole solutions from the policy, without a PRM: drawn, graded and counted (pass@1, maj@n, pass@n)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pathfinder.benchmarks.grading import Grader, GradingPreset, gold_of, last_boxed, majority, pass_at_k
from pathfinder.benchmarks.readers import SearchProblem
from pathfinder.core.params import Search
from pathfinder.engines.sampling import Sampling
from pathfinder.engines.workers import Chunk, OnDone, Work, Workers, cut
from pathfinder.policy.policy import POLICY, Policy, open_policy, safe_prompt


def solve(policy: Policy, problems: Sequence[SearchProblem], settings: Search) -> list[dict[str, Any]]:
    """Draw ``n`` whole solutions of each problem."""
    n = settings.n
    prompts = [safe_prompt(policy, problem.problem, []) for problem in problems for _ in range(n)]
    keys = [f"{settings.seed}/{p.set}/{p.id}/solution/{i}" for p in problems for i in range(n)]
    drawn = policy.generate(prompts, keys, Sampling(settings.temperature, settings.top_p, settings.solution_tokens))
    groups = (drawn[start : start + n] for start in range(0, len(drawn), n))
    return [
        {
            "set": problem.set,
            "id": problem.id,
            "question": problem.problem,
            "gt_answer": problem.key,
            "solutions": [completion.text for completion in completions],
            "finish": [completion.finish for completion in completions],
            "answers": [last_boxed(completion.text) for completion in completions],
        }
        for problem, completions in zip(problems, groups, strict=True)
    ]


@contextmanager
def open_sampling(
    settings: Search,
    urls: Sequence[str],
    folder: Path = POLICY,
    draw: Callable[[Policy, Sequence[Any], Search], Any] = solve,
) -> Iterator[Work]:
    """Load the policy in ``folder`` or connect to its servers ``urls``, if it has any.

    The work draws, by default whole solutions; a chunk's content is its problems.
    """
    policy = open_policy(settings, folder, urls)

    def work(chunk: Chunk, _: OnDone) -> Any:
        return draw(policy, chunk.content, settings)

    yield work


def draw_all(
    problems: Sequence[SearchProblem], workers: Workers, folder: Path, batch_size: int, title: str
) -> list[dict[str, Any]]:
    """The rows of ``solve`` for every problem, by workers whose job is ``open_sampling``."""
    return [row for part in workers.run(cut(problems, batch_size), folder, title) for row in part]


def grade_all(
    problems: Sequence[SearchProblem], drawn: Sequence[dict[str, Any]], preset: GradingPreset
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The rows of ``draw_all`` with graded answers, votes and the majority, and the failures of grading by kind.

    Under every preset, answers that are equal by our rules vote together; these comparisons are not graded.
    """
    with Grader() as grader:
        rows = [_graded(grader, problem, row, preset) for problem, row in zip(problems, drawn, strict=True)]
        failures = grader.failures.copy()
        return [_voted(grader, row) for row in rows], failures


def _graded(grader: Grader, problem: SearchProblem, row: dict[str, Any], preset: GradingPreset) -> dict[str, Any]:
    gold = gold_of(problem.set, problem.key, preset)
    return row | {"right": [grader.is_right(gold, answer, preset) for answer in row["answers"]]}


def _voted(grader: Grader, row: dict[str, Any]) -> dict[str, Any]:
    votes = grader.votes(row["answers"])
    first = majority(votes)
    is_right = first is not None and row["right"][row["answers"].index(first)]
    return row | {"votes": votes, "majority": first, "majority_right": is_right}


def figures(rows: Sequence[dict[str, Any]], n: int) -> dict[str, Sequence[float]]:
    """Pass@1, maj@n and pass@n of each graded row, in [0, 1]."""
    return {
        "pass@1": [sum(row["right"]) / n for row in rows],
        f"maj@{n}": [float(row["majority_right"]) for row in rows],
        f"pass@{n}": [pass_at_k(sum(row["right"]), n, n) for row in rows],
    }
