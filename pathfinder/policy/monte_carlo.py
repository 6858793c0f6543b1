"""Monte-Carlo values of steps: the share of a policy's completions after a step that reach the right answer.

A step is correct if its value is above 0 (hard estimation); the value itself is the soft label. A step that ends with
an answer needs no completion: its value is 1 if the answer is right, else 0. If solutions of a problem begin alike, the
common beginning is completed once.

Source: Math-Shepherd, Wang et al., arXiv 2312.08935, section 3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from ground.io import DataError, digest_of
from pathfinder.benchmarks.grading import Grader, gold_of, last_boxed
from pathfinder.benchmarks.readers import is_answer
from pathfinder.core.given import GivenSolution
from pathfinder.core.params import Search
from pathfinder.core.prompts import STEP_SEPARATOR
from pathfinder.engines.sampling import Sampling
from pathfinder.engines.workers import Workers, cut
from pathfinder.policy.policy import Policy, safe_prompt

_PROMPTS = 64  # about this many beginnings of solutions per chunk
Steps = tuple[str, ...]
Values = Mapping[tuple[str, Steps], float]
"""By problem and beginning; a beginning without room for a completion in the policy's context has no value."""


@dataclass(frozen=True, slots=True)
class Task:
    """A problem, its answer as ``gold_of`` reads it, and the beginnings of its solutions, each up to a step's end."""

    problem: str
    gold: tuple[str, ...]
    starts: tuple[Steps, ...]

    @property
    def open(self) -> list[Steps]:
        """The beginnings without an answer."""
        return [start for start in self.starts if _answer(start) is None]


def tasks_of(solutions: Iterable[GivenSolution]) -> list[Task]:
    """One task per problem; raises ``DataError`` with the row for a solution without an answer or without steps."""
    gold: dict[str, tuple[str, ...]] = {}
    starts: dict[str, dict[Steps, None]] = {}
    for one in solutions:
        parts = one.answer if isinstance(one.answer, list) else [one.answer]
        if not parts or not all(map(is_answer, parts)):
            found = "the solution has no right answer" if one.answer is None else f"answer is {one.answer!r:.80}"
            raise DataError(
                f"{one.at}: {found}; give one, or name the fields with --columns problem=…,solution=…,answer=… (the "
                "field answer of a file without solutions is read as one)"
            )
        if not all(step.strip() for step in one.steps or ("",)):
            raise DataError(f"{one.at}: a solution without steps, or an empty step; remove it")
        key = gold_of("", one.answer, "repaired")
        if gold.setdefault(one.problem, key) != key:
            raise DataError(f"{one.at}: the problem has another answer in an earlier row; correct one of the two")
        starts.setdefault(one.problem, {}).update(dict.fromkeys(_starts(one.steps)))
    return [Task(problem, key, tuple(starts[problem])) for problem, key in gold.items()]


def roll_out(policy: Policy, tasks: Sequence[Task], settings: Search) -> dict[str, Any]:
    """Complete every open beginning ``settings.n`` times.

    Returns each task's ``answers`` per beginning (none if there is no room), and the ``tokens`` of a ``Generator``.
    """
    starts = [(task.problem, start) for task in tasks for start in task.open]
    names = [digest_of([settings.seed, ascii(start)]) for start in starts]  # with the problem
    prompts = [safe_prompt(policy, *start) for start in starts for _ in range(settings.n)]
    keys = [f"{name}/{number}" for name in names for number in range(settings.n)]
    before = Counter(getattr(policy, "tokens", {}))
    drawn = policy.generate(prompts, keys, Sampling(settings.temperature, settings.top_p, settings.solution_tokens))
    groups = iter([drawn[at : at + settings.n] for at in range(0, len(drawn), settings.n)])
    answers = [
        [[last_boxed(one.text) for one in next(groups) if one.finish != "too_long"] for _ in task.open]
        for task in tasks
    ]
    return {"answers": answers, "tokens": Counter(getattr(policy, "tokens", {})) - before}


def draw(tasks: Sequence[Task], workers: Workers, folder: Path) -> tuple[Values, Counter[str], int]:
    """The values of all beginnings, by workers whose job draws with ``roll_out``; ``folder`` keeps finished chunks.

    Also returns the tokens of ``roll_out``, and the number of answers that could not be graded, which count as wrong.
    """
    size = max(1, _PROMPTS * len(tasks) // max(1, sum(len(task.starts) for task in tasks)))
    parts = workers.run(cut(tasks, size), folder, "label")
    answers = [row for part in parts for row in part["answers"]]
    values: dict[tuple[str, Steps], float] = {}
    with Grader() as grader:
        for task, drawn in zip(tasks, answers, strict=True):
            given = {start: [_answer(start)] for start in task.starts} | dict(zip(task.open, drawn, strict=True))
            for start, texts in given.items():
                right = [grader.is_right(task.gold, text) for text in texts]
                if right:
                    values[task.problem, start] = sum(right) / len(right)
    tokens = sum((Counter(part["tokens"]) for part in parts), Counter[str]())
    return values, tokens, grader.failures.total()


def rows_of(solutions: Iterable[GivenSolution], values: Values) -> Iterator[dict[str, Any]]:
    """A row of stepwise supervision per solution, up to its first step without a value, with values in ``mc_value``."""
    for one in solutions:
        found = [values.get((one.problem, start)) for start in _starts(one.steps)]
        known = list(takewhile(lambda value: value is not None, found))
        if known:
            labels = [value != 0 for value in known]
            yield {
                "id": one.id,
                "prompt": one.problem,
                "completions": one.steps[: len(known)],
                "labels": labels,
                "mc_value": known,
            }


def _starts(steps: Steps) -> Iterator[Steps]:
    return (steps[:end] for end in range(1, len(steps) + 1))


def _answer(start: Steps) -> str | None:
    return last_boxed(STEP_SEPARATOR.join(start))
