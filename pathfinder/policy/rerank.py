"""Choose the best of several solutions per problem: by each rule of ``choosing``, and by the vote of their answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ground.io import DataError
from pathfinder.benchmarks.grading import Grader, last_boxed, majority
from pathfinder.core.given import open_given, rows_in
from pathfinder.core.prompts import STEP_SEPARATOR
from pathfinder.core.steps import PRM, Solution
from pathfinder.policy.choosing import choose, steps_of


@dataclass(frozen=True, slots=True)
class Candidates:
    """A problem, the steps of each candidate, and the answer of each (None: it has none)."""

    id: str
    problem: str
    steps: tuple[tuple[str, ...], ...]
    answers: tuple[str | None, ...]


def read_candidates(source: str) -> list[Candidates]:
    """Read ``{"problem", "solutions": […][, "answers": […], "id"]}`` from JSON lines, one JSON list, or ``-``.

    A solution is a text, whose steps blank lines separate, or a list of steps. "question" and "candidates" are other
    names of the first two. Answers that are not given are the last ``\\boxed{}`` of each solution. Raises ``DataError``
    naming the file and row.
    """
    with open_given(source) as (name, handle):
        found = [_candidates(row, at) for at, row in rows_in(name, handle)]
    if not found:
        raise DataError(f"{name}: contains no row; give one JSON object per line")
    return found


def _candidates(row: Any, at: str) -> Candidates:
    row = row if isinstance(row, dict) else {}
    problem = row.get("problem", row.get("question"))
    given = row.get("solutions", row.get("candidates"))
    listed = [list(steps_of(one)) if isinstance(one, str) else one for one in given] if isinstance(given, list) else []
    are_steps = [isinstance(one, list) and all(isinstance(step, str) for step in one) for one in listed]
    if not isinstance(problem, str) or not listed or not all(are_steps):
        raise DataError(
            f"{at}: expected an object with problem (string) and solutions (non-empty list of texts or of lists of "
            "steps); correct or remove the row"
        )
    answers = row.get("answers", [last_boxed(STEP_SEPARATOR.join(steps)) for steps in listed])
    if not isinstance(answers, list) or len(answers) != len(listed):
        raise DataError(f"{at}: answers must be a list with one answer per solution; correct it or leave it out")
    identity = row.get("id", at.rpartition(" ")[2])
    if not all(answer is None or _is_plain(answer) or isinstance(answer, float) for answer in answers):
        raise DataError(f"{at}: answers must be texts, numbers or null; correct them or leave them out")
    if not _is_plain(identity) or not str(identity).strip():
        raise DataError(f"{at}: id is {identity!r:.80}, expected a text or an integer; correct it or leave it out")
    texts = tuple(None if answer is None else str(answer) for answer in answers)
    return Candidates(str(identity), problem, tuple(map(tuple, listed)), texts)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def reranked(prm: PRM, given: Sequence[Candidates]) -> Iterator[dict[str, Any]]:
    """Per problem ``{"id", "chosen": {rule: index}, "answers", "rewards": per candidate, per step}``.

    The rules are ``choosing.RULES`` and "vote": the first candidate with the most frequent answer. A candidate
    without an answer is chosen only if none has one; the rewards are None, and no rule chooses it, if it has no
    steps or is longer than the model's context.
    """
    with Grader() as grader:
        for one in given:
            places = [place for place, steps in enumerate(one.steps) if steps]
            scored = prm.score(
                [Solution(f"{one.id}, solution {place}", one.problem, one.steps[place]) for place in places]
            )
            rewards: list[list[float] | None] = [None] * len(one.steps)
            for place, steps in zip(places, scored, strict=True):
                rewards[place] = [0.0 if math.isnan(step.reward) else step.reward for step in steps] or None
            votes = grader.votes(one.answers)
            most = majority(votes)
            vote = None if most is None else votes.index(most)
            without = list(map(str, range(len(votes))))  # no answers: every candidate for itself
            chosen = choose(rewards, without if most is None else votes) | {"vote": vote}
            yield {"id": one.id, "chosen": chosen, "answers": list(one.answers), "rewards": rewards}
