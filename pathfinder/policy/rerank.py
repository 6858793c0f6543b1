"""Choose the best of several solutions per problem: by each rule of ``choosing``, and by a vote of their answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ground.io import DataError
from ground.show import aligned
from pathfinder.benchmarks.grading import Grader, last_boxed, majority
from pathfinder.core.given import Given, GivenRow
from pathfinder.core.layouts import CANDIDATES
from pathfinder.core.prompts import STEP_SEPARATOR
from pathfinder.core.steps import PRM, Solution, StepScore
from pathfinder.policy.choosing import SCORES, choose


@dataclass(frozen=True, slots=True)
class Candidates:
    """A problem, and the steps and the answer of each candidate (None: no answer, or an empty one)."""

    id: str
    problem: str
    steps: tuple[tuple[str, ...], ...]
    answers: tuple[str | None, ...]


def read_candidates(given: Given) -> list[Candidates]:
    """The candidates of each problem: the solutions of a row, or of all rows with one solution of the same problem.

    If no answers are given, each solution's last ``\\boxed{}`` is its answer. Raises ``DataError`` naming file and row
    for bad answers, or if no problem has several solutions.
    """
    if given.layout != CANDIDATES and all(len(row.solutions) == 1 for row in given.rows):
        return _by_problem(given)
    return [_candidates(row) for row in given.rows]


def _by_problem(given: Given) -> list[Candidates]:
    found: dict[str, Candidates] = {}
    for one in map(_candidates, given.rows):
        first = found.get(one.problem, replace(one, steps=(), answers=()))
        found[one.problem] = replace(first, steps=first.steps + one.steps, answers=first.answers + one.answers)
    if len(found) == len(given.rows):
        raise DataError(f"{given.name}: no problem has several solutions; give more, or use `pathfinder score`")
    return [*found.values()]


def _candidates(row: GivenRow) -> Candidates:
    answers = row.answers
    if answers is None:
        answers = [last_boxed(STEP_SEPARATOR.join(steps)) for steps in row.solutions]
    if not isinstance(answers, list) or len(answers) != len(row.solutions):
        raise DataError(f"{row.at}: answers must be a list with one answer per solution; correct it or leave it out")
    if not all(isinstance(one, str | int | float | None) and not isinstance(one, bool) for one in answers):
        raise DataError(f"{row.at}: answers must be texts, numbers or null; correct them or leave them out")
    texts = tuple(None if answer is None or not str(answer).strip() else str(answer) for answer in answers)
    return Candidates(row.id, row.problem, row.solutions, texts)


def reranked(prm: PRM, given: Sequence[Candidates]) -> Iterator[dict[str, Any]]:
    """Per problem ``{"id", "chosen": {rule: index}, "answers", "rewards": per candidate, per step, "unlike"}``.

    The rules are ``choosing.RULES`` and "vote": the first candidate with the most frequent answer. A candidate
    without an answer is chosen only if none has one; the rewards are None, and no rule chooses it, if it has no
    steps or is longer than the model's context.
    """
    with Grader() as grader:
        for one in given:
            different = dict.fromkeys(filter(None, one.steps))  # equal ones are scored once: rounding breaks no tie
            names = {steps: f"{one.id}, solution {one.steps.index(steps)}" for steps in different}
            asked = [Solution(names[steps], one.problem, steps) for steps in different]
            scored = dict(zip(different, map(_rewards, prm.score(asked)), strict=True))
            rewards = [scored.get(steps) for steps in one.steps]
            votes = grader.votes(one.answers)
            most = majority(votes)
            vote = None if most is None else votes.index(most)
            without = list(map(str, range(len(votes))))  # without answers, every candidate votes for itself
            chosen = choose(rewards, without if most is None else votes) | {"vote": vote}
            row = {"id": one.id, "chosen": chosen, "answers": list(one.answers), "rewards": rewards}
            yield row | {"unlike": list(dict.fromkeys(said for each in asked for said in prm.known.unlike(each)))}


def _rewards(steps: Sequence[StepScore]) -> list[float] | None:
    return [0.0 if math.isnan(step.reward) else step.reward for step in steps] or None


def drawn(one: Candidates, row: Mapping[str, Any]) -> Iterator[str]:
    """One problem for a terminal: each candidate's answer, the scores of its rewards, and the rules that choose it."""
    rows = [("", "answer", *SCORES, "chosen by")]
    for place, (answer, rewards) in enumerate(zip(row["answers"], row["rewards"], strict=True)):
        figures = (f"{score(rewards):.2f}" if rewards else "–" for score in SCORES.values())
        by = [rule for rule, chosen in row["chosen"].items() if chosen == place]
        shown = " ".join((answer or "–").split())
        rows.append((str(place), shown, *figures, "all" if len(by) == len(row["chosen"]) else ", ".join(by)))
    yield from (one.problem, "", *aligned(rows, [False, *[True] * (1 + len(SCORES)), False]))
