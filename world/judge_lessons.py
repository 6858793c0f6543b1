"""Lessons for training the judge: a place in a solution, and several steps for it, each with the judge's answer."""

from __future__ import annotations

import random
from collections.abc import Mapping

from pathfinder.core import prompts
from world import tiny
from world.lessons import Encoder, Lesson, draw_problem, word_questions
from world.oracle import Claim, Remark, Sum, Verdict, is_early, next_own
from world.steps import PREFIX_HABITS, draw_step_to_verify, write_solution
from world.story import LARGEST_NUMBER, SIGN, Level, Problem, compute


def reasoning(problem: Problem, verdict: Verdict) -> list[tuple[str, bool]]:
    """The judge's reasoning: each fact that it looks up or recomputes, and whether the step agrees with it."""
    step, state, faults = verdict.step, verdict.before, set(verdict.faults)
    notes: list[tuple[str, bool]] = []
    following = f"{state.done + 1})" if state.done < len(problem.events) else "none"
    repeated = "repetition" in faults
    if step.event is not None:
        notes.append((f"next {following}", step.event == state.done + 1 and following != "none"))
        if step.event <= state.done:
            notes.append(("again", repeated))
        if not isinstance(step, Remark) and not repeated:
            event = problem.events[step.event - 1] if step.event <= len(problem.events) else None
            shown = f"{event.actor} {event.verb} {event.object}" if event else "none"
            notes.append((shown, faults.isdisjoint(("event", "person", "name", "verb", "amount"))))
    elif isinstance(step, Sum):
        notes += _notes_of_bare_line(problem, verdict)
    elif step.kind == "answer":
        following = following if is_early(problem, state) else "none"
        notes.append((f"next {following}", following == "none"))
    else:
        notes.append(("again", True))
    if step.noun is not None:
        notes.append((problem.noun, "unit" not in faults))
    if step.value is not None and not repeated:
        notes.append((f"from {state.value}", step.value == state.value))
    if isinstance(step, Claim):
        operand = "2" if step.object == "them" else step.object
        agrees = faults.isdisjoint(("operation", "misreading", "operand"))
        notes.append((f"{step.verb} {SIGN[step.verb]} {operand}", agrees))
    if isinstance(step, Claim | Sum):
        result = compute(step.value, step.sign, step.right)
        shown = str(result) if 0 <= result <= LARGEST_NUMBER else "none"
        notes.append((f"{step.value} {step.sign} {step.right} = {shown}", "arithmetic" not in faults))
    return notes


def _notes_of_bare_line(problem: Problem, verdict: Verdict) -> list[tuple[str, bool]]:
    faults = set(verdict.faults)
    if "repetition" in faults:
        return [("again", True)]
    event = next(iter(problem.events[next_own(problem, verdict.before) :]), None)
    if event is None:
        return [("next none", False)]
    found = [] if problem.is_sum else [(f"{event.actor} {event.verb} {event.object}", True)]
    agrees = faults.isdisjoint(("operation", "misreading", "amount"))
    return [*found, (f"{event.verb if found else 'next'} {event.sign} {event.amount}", agrees)]


def judge_answer(problem: Problem, verdict: Verdict) -> list[tuple[str, float]]:
    """The correct answer to the judge's prompt, as parts with loss weights: decisions weigh more than wording."""
    parts = [(tiny.JUDGE_REASONING, 0.5)]
    for i, (text, agrees) in enumerate(reasoning(problem, verdict)):
        parts += [(f" {text}" if i else text, 1.0), (f" {tiny.YES if agrees else tiny.NO}", 3.0), (".", 0.5)]
    for caption, score in zip(tiny.JUDGE_SCORES, verdict.labels, strict=True):
        parts += [(caption, 0.5), (str(score), 3.0)]
    return [*parts, (tiny.END_OF_TURN, 0.5)]


def judge_lesson(encoder: Encoder, rng: random.Random, levels: Mapping[str, Level]) -> Lesson:
    """Draw a story, a place in its solution, and four steps for that place with the judge's answers."""
    problem = draw_problem(rng, levels)
    solution = write_solution(problem, rng, PREFIX_HABITS)
    place = rng.randrange(len(solution))
    written, prefix = solution[place], [w.text for w in solution[:place]]
    indent = 0 if rng.random() < 0.9 else rng.choice(tiny.INDENTS[1:])
    user = prompts.judge_prompt(problem.text, prefix, tiny.STEP_SENTINEL, indent)
    before, after = user.split(tiny.STEP_SENTINEL)
    trunk = encoder.piece((f"{tiny.START_OF_TURN}user\n{before}", 0.0))
    tail = f"{after}{tiny.END_OF_TURN}\n{tiny.START_OF_TURN}assistant\n"
    branches = []
    for _ in range(4):
        verdict = draw_step_to_verify(rng, problem, written, scramble=0.35)
        asked = encoder.questions(word_questions(verdict), weight=0.5)
        answer = encoder.piece((tail, 0.0), *judge_answer(problem, verdict))
        branches.append((len(trunk.ids), asked + answer))
    return Lesson(trunk, tuple(branches))
