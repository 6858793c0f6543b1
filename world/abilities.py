"""Abilities of the tiny models, measured on held-out stories against the oracle."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pathfinder.benchmarks.bootstrap import mean_interval
from pathfinder.core import prompts
from pathfinder.core.labels import Scores
from pathfinder.engines.generate import Generator
from pathfinder.engines.sampling import Sampling
from pathfinder.judge.parsing import parse_scores
from world.oracle import CRITERIA, Verdict, assess_to_error
from world.steps import PREFIX_HABITS, draw_candidate, write_solution
from world.story import Level, Problem, sample_from

VOTERS = 8
LONGEST_SOLUTION = 256
TEMPERATURE, TOP_P = 0.7, 0.95
"""The sampling of the search (paper section 4.1)."""


def held_out(count: int, purpose: str, levels: Mapping[str, Level]) -> list[Problem]:
    """Draw ``count`` held-out stories, from each level in turn."""
    rng, in_turn = random.Random(f"measure/{purpose}"), list(levels.values())
    return [sample_from(rng, in_turn[i % len(in_turn)], "held_out") for i in range(count)]


def sample_solutions(
    policy: Generator, problems: Sequence[Problem], keys: Sequence[str], temperature: float = 1.0, top_p: float = 1.0
) -> list[list[str]]:
    """One solution (its steps) per problem, written by the policy under its own prompt."""
    sampling = Sampling(temperature, top_p, LONGEST_SOLUTION, (prompts.END_OF_TURN,))
    completions = policy.generate([prompts.policy_prompt(problem.text, []) for problem in problems], keys, sampling)
    return [completion.text.strip("\n").split(prompts.STEP_SEPARATOR) for completion in completions]


def measure_policy(policy: Generator, count: int, levels: Mapping[str, Level]) -> dict[str, Any]:
    """Greedy step accuracy, pass@1, maj@8 and pass@8 (also by level), and the first faults of sampled solutions."""
    problems = held_out(count, "policy", levels)
    greedy = sample_solutions(policy, problems, [str(i) for i in range(count)], temperature=0.0)
    verdicts = [v for p, s in zip(problems, greedy, strict=True) for v in assess_to_error(p, s)]
    repeated = [problem for problem in problems for _ in range(VOTERS)]
    keys = [f"policy/{i}" for i in range(len(repeated))]
    sampled = sample_solutions(policy, repeated, keys, TEMPERATURE, TOP_P)
    faults = Counter(_first_fault(problem, steps) for problem, steps in zip(repeated, sampled, strict=True))
    answers = [_answer(steps) for steps in sampled]
    scores = [(p.level, _score(p, answers[VOTERS * i : VOTERS * (i + 1)])) for i, p in enumerate(problems)]
    return {
        "greedy_step_accuracy": _mean([bool(v and v.is_correct) for v in verdicts]),
        "greedy_answer_accuracy": _mean([_answer(s) == p.answer for p, s in zip(problems, greedy, strict=True)]),
        "first_faults_at_temperature": dict(faults.most_common()),
        "by_level": {
            name: {
                figure: _mean([score[figure] for level, score in scores if name in ("all", level)])
                for figure in ("pass@1", "maj@8", "pass@8", "mean")
            }
            for name in ("all", *levels)
        },
    }


def _score(problem: Problem, answers: list[int | None]) -> dict[str, float]:
    votes = Counter(answer for answer in answers if answer is not None)
    correct = [answer == problem.answer for answer in answers]
    maj = bool(votes) and votes.most_common(1)[0][0] == problem.answer  # the first of equal votes
    return {"pass@1": correct[0], "maj@8": maj, "pass@8": any(correct), "mean": sum(correct) / VOTERS}


def judge_cases(count: int, levels: Mapping[str, Level]) -> list[tuple[Problem, list[str], Verdict]]:
    """Correct and incorrect held-out steps, one per story, with the steps before each."""
    rng = random.Random("measure/judge/cases")
    cases = []
    for problem in held_out(count, "judge", levels):
        solution = write_solution(problem, rng, PREFIX_HABITS)
        place = rng.randrange(len(solution))
        prefix = [written.text for written in solution[:place]]
        cases.append((problem, prefix, draw_candidate(rng, problem, solution[place])))
    return cases


def measure_judge(judge: Generator, count: int, levels: Mapping[str, Level]) -> dict[str, Any]:
    """Error recall and precision (score A or B of 0 flags a step), recall by fault, and agreement by score.

    ``wrong`` is the share of incorrect steps, which is also the precision of flagging every step. ``intervals`` are
    95 % intervals by story.
    """
    cases = judge_cases(count, levels)
    questions = [judge.chat_prompt(prompts.judge_prompt(p.text, prefix, step.text)) for p, prefix, step in cases]
    answers = judge.generate(questions, [f"judge/{i}" for i in range(len(cases))], Sampling(1.0, TOP_P, 128))
    by_fault: dict[str, list[bool]] = defaultdict(list)
    answered: list[tuple[Verdict, Scores]] = []
    for (_, _, step), answer in zip(cases, answers, strict=True):
        scores = parse_scores(answer.text)
        if not isinstance(scores, Scores):
            by_fault[scores].append(False)
            continue
        answered.append((step, scores))
        for fault in step.faults or ("none",):
            by_fault[fault].append(scores.has_error)
    flags = np.array([scores.has_error for _, scores in answered], dtype=np.bool_)
    wrong = np.array([not verdict.is_correct for verdict, _ in answered], dtype=np.bool_)
    rates = {"wrong": wrong, "error_recall": flags[wrong], "error_precision": wrong[flags]}
    rates["false_alarms"] = flags[~wrong]
    return {
        "cases": len(cases),
        "parsed": len(answered) / len(cases),
        **{name: _mean(found.tolist()) for name, found in rates.items()},
        "intervals": {name: mean_interval(found.tolist()) for name, found in rates.items() if found.size},
        "agreement": {
            name: sum(scores.named[name] == v.scores[name] for v, scores in answered) / max(1, len(answered))
            for name in CRITERIA
        },
        "called_wrong_by_fault": {name: [_mean(found), len(found)] for name, found in sorted(by_fault.items())},
    }


def _first_fault(problem: Problem, steps: list[str]) -> str:
    last = assess_to_error(problem, steps)[-1]
    return "unparsed" if last is None else "none" if last.is_correct else last.faults[0]


def _answer(steps: list[str]) -> int | None:
    before, found, rest = steps[-1].partition("\\boxed{")
    number = rest.partition("}")[0]
    return int(number) if before and found and number.isdigit() else None


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0
