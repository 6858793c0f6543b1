"""What the tiny judge reads while it is trained: one place of a solution, several steps, each with its answer."""

from __future__ import annotations

import random

from pathfinder.core import prompts
from pathfinder.world import tiny
from pathfinder.world.lessons import PREFIX_HABITS, Lesson, Scribe, candidate, joined, scrambled, words_of
from pathfinder.world.steps import write_solution
from pathfinder.world.story import SIGN, Aside, Claim, Problem, State, Verdict, assess, compute, parse


def judge_notes(problem: Problem, state: State, step: str) -> list[tuple[str, bool]]:
    """The judge's reasoning: each thing looked up or recomputed, and whether the step agrees with it."""
    said = parse(step)
    if said is None:
        raise ValueError(f"{step!r} is outside the grammar; judge lessons are written for steps that parse")
    notes: list[tuple[str, bool]] = []
    following = f"{state.done + 1})" if state.done < len(problem.events) else "none"
    if said.event is not None:
        notes.append((f"next {following}", said.event == state.done + 1 and following != "none"))
        repeated = said.body in state.claims
        if said.event <= state.done:
            notes.append(("again", repeated))
        if said.body is not None and not repeated:
            notes.append(_event_note(problem, said.event, said.body))
    elif said.kind == "answer":
        notes.append((f"next {following}", following == "none"))
    else:
        notes.append(("again", True))
    repeated = said.body is not None and said.body in state.claims
    if said.noun is not None:
        notes.append((problem.noun, said.noun == problem.noun))
    if said.value is not None and not repeated:
        notes.append((f"from {state.value}", said.value == state.value))
    if isinstance(said.body, Claim):
        notes += _claim_notes(said.body)
    return notes


def _event_note(problem: Problem, number: int, body: Claim | Aside) -> tuple[str, bool]:
    if number > len(problem.events):
        return "none", False
    event = problem.events[number - 1]
    if isinstance(body, Aside):
        agrees = event.actor == body.name and event.actor != problem.hero
    else:
        agrees = (event.actor, event.verb, event.object) == (problem.hero, body.verb, body.object)
    return f"{event.actor} {event.verb} {event.object}", agrees


def _claim_notes(claim: Claim) -> list[tuple[str, bool]]:
    sign = SIGN[claim.verb]
    operand = "2" if claim.object == "them" else claim.object
    result = compute(claim.left, claim.sign, claim.right)
    shown = str(result) if 0 <= result <= 99 else "none"
    return [
        (f"{claim.verb} {sign} {operand}", (sign, operand) == (claim.sign, str(claim.right))),
        (f"{claim.left} {claim.sign} {claim.right} = {shown}", result == claim.result),
    ]


def judge_answer(problem: Problem, state: State, step: str, verdict: Verdict) -> list[tuple[str, float]]:
    """The right answer to the judge's prompt in parts with loss weights: what is decided weighs more than wording."""
    parts = [(tiny.JUDGE_REASONING, 0.5)]
    for i, (text, holds) in enumerate(judge_notes(problem, state, step)):
        parts += [(f" {text}" if i else text, 1.0), (f" {tiny.YES if holds else tiny.NO}", 3.0), (".", 0.5)]
    scores = (verdict.math, verdict.consistency, verdict.optimality)
    for caption, score in zip(tiny.JUDGE_SCORES, scores, strict=True):
        parts += [(caption, 0.5), (str(score), 3.0)]
    return [*parts, (tiny.END_OF_TURN, 0.5)]


def judge_lesson(scribe: Scribe, rng: random.Random, problem: Problem, candidates: int = 4) -> Lesson:
    """One place of one solution and several steps there, each with the judge's answer."""
    solution = write_solution(problem, rng, PREFIX_HABITS)
    place = rng.randrange(len(solution))
    written, prefix = solution[place], [w.text for w in solution[:place]]
    indent = 0 if rng.random() < 0.9 else rng.choice(tiny.INDENTS[1:])
    user = prompts.judge_prompt(problem.text, prefix, tiny.STEP_SENTINEL, indent)
    before, after = user.split(tiny.STEP_SENTINEL)
    trunk = scribe.piece((f"{tiny.START_OF_TURN}user\n{before}", 0.0))
    tail = f"{after}{tiny.END_OF_TURN}\n{tiny.START_OF_TURN}assistant\n"
    branches = []
    for _ in range(candidates):
        mixed = scrambled(rng, problem, written.before) if rng.random() < 0.35 else None
        step = mixed if mixed is not None else candidate(rng, problem, written)
        verdict = assess(problem, written.before, step)
        if verdict is not None:
            asked = scribe.asked(words_of(step, verdict), weight=0.5)
            answer = scribe.piece((tail, 0.0), *judge_answer(problem, written.before, step, verdict))
            branches.append((len(trunk.ids), joined(asked, answer)))
    return Lesson(trunk, tuple(branches))
