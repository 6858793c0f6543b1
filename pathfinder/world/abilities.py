"""What the tiny models can do, measured on held-out stories against the oracle."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pathfinder.benchmarks.bootstrap import mean_interval
from pathfinder.core import prompts
from pathfinder.core.labels import Scores
from pathfinder.engines.generate import Generator, Sampling
from pathfinder.judge.parsing import parse_scores
from pathfinder.world.lessons import PREFIX_HABITS, candidate
from pathfinder.world.steps import write_solution
from pathfinder.world.story import LEVELS, Level, Problem, Verdict, assess_all, sample_problem, split_of

VOTERS = 8
LONGEST_SOLUTION = 256
TEMPERATURE, TOP_P = 0.7, 0.95
"""The search's sampling (section 4.1)."""


def held_out(count: int, purpose: str, levels: Mapping[str, Level] = LEVELS) -> list[Problem]:
    """``count`` held-out stories, levels in turn."""
    rng = random.Random(f"measure/{purpose}")
    problems: list[Problem] = []
    while len(problems) < count:
        problem = sample_problem(rng, list(levels.values())[len(problems) % len(levels)])
        if split_of(problem) == "held_out":
            problems.append(problem)
    return problems


def sample_solutions(
    policy: Generator, problems: Sequence[Problem], keys: Sequence[str], temperature: float = 1.0, top_p: float = 1.0
) -> list[list[str]]:
    """One solution (its steps) a problem, written by the policy under its own prompt."""
    sampling = Sampling(temperature, top_p, LONGEST_SOLUTION, (prompts.END_OF_TURN,))
    asked = [prompts.policy_prompt(problem.text, []) for problem in problems]
    completions = policy.generate(asked, keys, sampling)
    return [completion.text.strip("\n").split(prompts.STEP_SEPARATOR) for completion in completions]


def measure_policy(policy: Generator, count: int = 200, levels: Mapping[str, Level] = LEVELS) -> dict[str, Any]:
    """Greedy step accuracy, pass@1, maj@8 and pass@8 in all and by level, and the faults of sampled solutions."""
    problems = held_out(count, "policy", levels)
    greedy = sample_solutions(policy, problems, [str(i) for i in range(count)], temperature=0.0)
    judged = [_until_fault(problem, steps) for problem, steps in zip(problems, greedy, strict=True)]
    steps = [verdict for verdicts in judged for verdict in verdicts]
    wide = [problem for problem in problems for _ in range(VOTERS)]
    keys = [f"policy/{i}" for i in range(len(wide))]
    sampled = sample_solutions(policy, wide, keys, TEMPERATURE, TOP_P)
    faults = Counter(_first_fault(problem, steps_) for problem, steps_ in zip(wide, sampled, strict=True))
    rows = []
    for i, problem in enumerate(problems):
        answers = [_answer(solution) for solution in sampled[VOTERS * i : VOTERS * (i + 1)]]
        votes = Counter(answer for answer in answers if answer is not None)
        best = min(votes, key=lambda answer: (-votes[answer], answers.index(answer))) if votes else None
        right = [answer == problem.answer for answer in answers]
        rows.append((problem.level, right[0], best == problem.answer, any(right), sum(right) / VOTERS))
    groups = {"all": rows} | {level: [row for row in rows if row[0] == level] for level in levels}
    return {
        "greedy_step_accuracy": _mean([bool(v and v.sound) for v in steps]),
        "greedy_answer_accuracy": _mean([_answer(s) == p.answer for p, s in zip(problems, greedy, strict=True)]),
        "first_faults_at_temperature": dict(faults.most_common()),
        "by_level": {
            name: {
                "pass@1": _mean([row[1] for row in group]),
                "maj@8": _mean([row[2] for row in group]),
                "pass@8": _mean([row[3] for row in group]),
                "mean": _mean([row[4] for row in group]),
            }
            for name, group in groups.items()
        },
    }


@dataclass(frozen=True, slots=True)
class Case:
    """A step to judge with its truth."""

    problem: Problem
    prefix: tuple[str, ...]
    step: str
    verdict: Verdict


def judge_cases(count: int, levels: Mapping[str, Level] = LEVELS) -> list[Case]:
    """Held-out steps, sound and faulty, one a story."""
    rng = random.Random("measure/judge/cases")
    cases: list[Case] = []
    for problem in held_out(count, "judge", levels):
        solution = write_solution(problem, rng, PREFIX_HABITS)
        place = rng.randrange(len(solution))
        step = candidate(rng, problem, solution[place])
        verdict = assess_all(problem, [*(w.text for w in solution[:place]), step])[-1]
        if verdict is not None:
            cases.append(Case(problem, tuple(w.text for w in solution[:place]), step, verdict))
    return cases


def measure_judge(
    judge: Generator, count: int = 1500, levels: Mapping[str, Level] = LEVELS, temperature: float = 1.0
) -> dict[str, Any]:
    """Error recall and precision (a step is called wrong when A or B is 0), recall by fault, agreement by score.

    ``wrong`` is the share of wrong steps, the precision of calling every step wrong; ``intervals`` hold 95 %, by story.
    """
    cases = judge_cases(count, levels)
    asked = [judge.chat_prompt(prompts.judge_prompt(c.problem.text, c.prefix, c.step)) for c in cases]
    keys = [f"judge/{i}" for i in range(len(cases))]
    answers = judge.generate(asked, keys, Sampling(temperature, TOP_P, 128))
    parsed = [parse_scores(answer.text) for answer in answers]
    caught: dict[str, list[bool]] = defaultdict(list)
    called, agree = [], {"math": [0, 0], "consistency": [0, 0], "optimality": [0, 0]}
    for case, scores in zip(cases, parsed, strict=True):
        if not isinstance(scores, Scores):
            caught[scores].append(False)
            continue
        said_wrong = not (scores.math and scores.consistency)
        called.append((said_wrong, not case.verdict.sound))
        for fault in case.verdict.faults or ("none",):
            caught[fault].append(said_wrong)
        for name, tally in agree.items():
            tally[0] += int(getattr(scores, name) == getattr(case.verdict, name))
            tally[1] += 1
    said, wrong = np.array(called, dtype=np.bool_).reshape(-1, 2).T
    rates = {"wrong": wrong, "error_recall": said[wrong], "error_precision": wrong[said], "false_alarms": said[~wrong]}
    return {
        "cases": len(cases),
        "parsed": len(called) / len(cases),
        **{name: _mean(found.tolist()) for name, found in rates.items()},
        "intervals": {
            name: list(mean_interval(found.tolist(), 2000, 0.95, 42)) for name, found in rates.items() if found.size
        },
        "agreement": {name: right / max(1, total) for name, (right, total) in agree.items()},
        "called_wrong_by_fault": {name: [_mean(said), len(said)] for name, said in sorted(caught.items())},
    }


def _until_fault(problem: Problem, steps: list[str]) -> list[Verdict | None]:
    verdicts: list[Verdict | None] = []
    for verdict in assess_all(problem, steps):
        verdicts.append(verdict)
        if verdict is None or not verdict.sound:
            break
    return verdicts


def _first_fault(problem: Problem, steps: list[str]) -> str:
    last = _until_fault(problem, steps)[-1]
    return "unparsed" if last is None else "none" if last.sound else last.faults[0]


def _answer(steps: list[str]) -> int | None:
    before, found, rest = steps[-1].partition("\\boxed{")
    number = rest.partition("}")[0]
    return int(number) if before and found and number.isdigit() else None


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0
