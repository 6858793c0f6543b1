"""Writing solutions of the small world: right steps, typed faults, and solvers with human habits.

Everything draws from the ``random.Random`` that it is given; equal generators give equal texts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pathfinder.world.story import (
    LINKS,
    NAMES,
    NOUNS,
    PLAIN,
    SIGN,
    SUBOPTIMAL,
    TRICKY,
    Aside,
    Claim,
    Problem,
    State,
    Verdict,
    assess,
    begin,
    compute,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Habits:
    """How a solver writes; every field is a probability per step.

    ``misread`` applies to the hero's tricky events, ``slip`` to any step (a typed fault drawn from ``slips``),
    ``idle`` inserts a step that does not help, ``flourish`` leaves the usual wording of the link.
    """

    misread: float = 0.0
    slip: float = 0.0
    idle: float = 0.0
    flourish: float = 0.15
    slips: tuple[str, ...] = ("arithmetic", "amount", "carried", "skipped", "person", "operation", "early")


@dataclass(frozen=True, slots=True)
class Written:
    """A step, the state before it and its verdict."""

    before: State
    text: str
    verdict: Verdict


def claim_text(claim: Claim, link: str = LINKS[0]) -> str:
    """The wording of a claim about the hero's event."""
    equation = f"{claim.left} {claim.sign} {claim.right} = {claim.result}"
    return f"{claim.event}) {claim.verb} {claim.object}{link}{equation} {claim.noun}."


def aside_text(aside: Aside) -> str:
    """The wording of a step about somebody else's event."""
    return f"{aside.event}) is about {aside.name}, so still {aside.value} {aside.noun}."


def answer_text(value: int) -> str:
    """The wording of the last step."""
    return f"The answer is \\boxed{{{value}}}."


def right_step(problem: Problem, state: State, link: str = LINKS[0]) -> str:
    """The best next step after ``state``."""
    if state.done >= len(problem.events):
        return answer_text(state.value)
    event = problem.events[state.done]
    if event.actor != problem.hero:
        return aside_text(Aside(state.done + 1, event.actor, state.value, problem.noun))
    return claim_text(_own_claim(problem, state, state.done + 1), link)


def _own_claim(problem: Problem, state: State, number: int) -> Claim:
    event = problem.events[number - 1]
    sign = SIGN[event.verb]
    result = compute(state.value, sign, event.amount)
    return Claim(number, event.verb, event.object, state.value, sign, event.amount, result, problem.noun)


def _aside_or_answer_fault(problem: Problem, state: State, fault: str, rng: random.Random) -> str | None:
    """Faults of the steps that are no claims: the last step and asides."""
    if state.done >= len(problem.events):
        return answer_text(_nearby(rng, state.value)) if fault == "answer" else None
    event = problem.events[state.done]
    aside = Aside(state.done + 1, event.actor, state.value, problem.noun)
    match fault:
        case "carried":
            return aside_text(replace(aside, value=_nearby(rng, state.value)))
        case "unit":
            return aside_text(replace(aside, noun=_other(rng, NOUNS, problem.noun)))
        case "name":
            others = tuple(name for name in NAMES if name != problem.hero)
            return aside_text(replace(aside, name=_other(rng, others, event.actor)))
        case "person":
            return claim_text(_own_claim(problem, state, state.done + 1))
    return None


def fault_step(problem: Problem, state: State, fault: str, rng: random.Random, link: str = LINKS[0]) -> str | None:
    """A step after ``state`` with exactly this fault, or ``None`` where it cannot be written there."""
    text: str | None
    if fault in SUBOPTIMAL:
        text = idle_step(problem, state, fault, rng)
    elif fault == "early":
        text = answer_text(state.value) if state.done < len(problem.events) else None
    elif fault == "contradiction":
        text = _contradiction(state, rng)
    elif fault == "skipped":
        text = _skipped(problem, state, link)
    elif state.done >= len(problem.events) or problem.events[state.done].actor != problem.hero:
        text = _aside_or_answer_fault(problem, state, fault, rng)
    else:
        text = _claim_fault(problem, state, fault, rng, link)
    if text is None:
        return None
    verdict = assess(problem, state, text)
    return text if verdict and verdict.faults == (fault,) and verdict.state.value <= problem.scale.written else None


def _skipped(problem: Problem, state: State, link: str) -> str | None:
    if state.done + 1 >= len(problem.events):
        return None
    return right_step(problem, replace(state, done=state.done + 1), link)


def _contradiction(state: State, rng: random.Random) -> str | None:
    claims = [claim for claim in state.claims if isinstance(claim, Claim)]
    if not claims:
        return None
    claim = rng.choice(claims)
    left = state.value
    again = replace(claim, left=left, result=compute(left, claim.sign, claim.right))
    return claim_text(again) if again.result >= 0 else None


def _claim_fault(problem: Problem, state: State, fault: str, rng: random.Random, link: str) -> str | None:
    claim = _own_claim(problem, state, state.done + 1)
    match fault:
        case "arithmetic":
            claim = replace(claim, result=_nearby(rng, claim.result))
        case "misreading" | "operation":
            claim = _recomputed(replace(claim, sign=_other(rng, "+-", claim.sign)))
        case "operand":
            claim = _recomputed(replace(claim, right=_other(rng, range(1, problem.scale.amounts + 1), claim.right)))
        case "amount":
            amount = _other(rng, range(1, problem.scale.amounts + 1), claim.right)
            claim = _recomputed(replace(claim, object=str(amount), right=amount))
        case "verb":
            verb = _other(rng, PLAIN + TRICKY, claim.verb)
            claim = _recomputed(replace(claim, verb=verb, sign=SIGN[verb]))
        case "carried":
            lefts = [state.value + d for d in (-3, -2, -1, 1, 2, 3)] + [problem.start, *_stated(state)]
            claim = _recomputed(replace(claim, left=rng.choice(lefts)))
        case "person":
            others = tuple(name for name in NAMES if name != problem.hero)
            return aside_text(Aside(state.done + 1, rng.choice(others), state.value, problem.noun))
        case "unit":
            claim = replace(claim, noun=_other(rng, NOUNS, claim.noun))
        case _:
            return None
    return claim_text(claim, link) if min(claim.left, claim.result) >= 0 else None


def _stated(state: State) -> list[int]:
    return [claim.left for claim in state.claims if isinstance(claim, Claim)]


def _recomputed(claim: Claim) -> Claim:
    return replace(claim, result=compute(claim.left, claim.sign, claim.right))


def _nearby(rng: random.Random, value: int) -> int:
    value = max(value, 0)  # a wrong value carried on may ask for less than nothing
    return rng.choice([value + d for d in (-3, -2, -1, -1, 1, 1, 2, 3) if value + d >= 0])


def _other(rng: random.Random, choices: Sequence[T], avoid: T) -> T:
    return rng.choice([choice for choice in choices if choice != avoid])


def idle_step(problem: Problem, state: State, kind: str, rng: random.Random) -> str | None:
    """A true step that does not help, or ``None`` where that kind cannot be written."""
    said = f"{state.value} {problem.noun}"
    match kind:
        case "repetition":
            if not state.claims:
                return None
            claim = rng.choice(state.claims)
            return claim_text(claim) if isinstance(claim, Claim) else aside_text(claim)
        case "restatement":
            return f"So far that is {said}."
        case "circular":
            return f"If that is {said}, then {said} it is."
        case "planning":
            return f"Next we read {state.done + 1})." if state.done < len(problem.events) else None
    raise ValueError(f"unknown kind of idle step {kind!r}; expected one of {SUBOPTIMAL}")


def link_of(rng: random.Random, flourish: float) -> str:
    """The usual link, or with probability ``flourish`` one of the others."""
    return rng.choice(LINKS[1:]) if rng.random() < flourish else LINKS[0]


def draw_step(problem: Problem, state: State, rng: random.Random, habits: Habits) -> str:
    """The next step as a solver with ``habits`` writes it."""
    link = link_of(rng, habits.flourish)
    if rng.random() < habits.idle:
        idle = fault_step(problem, state, rng.choice(SUBOPTIMAL), rng)
        if idle is not None:
            return idle
    open_event = problem.events[state.done] if state.done < len(problem.events) else None
    own_tricky = open_event is not None and open_event.actor == problem.hero and open_event.verb in TRICKY
    if own_tricky and rng.random() < habits.misread:
        misread = fault_step(problem, state, "misreading", rng, link)
        if misread is not None:
            return misread
    if rng.random() < habits.slip:
        slip = fault_step(problem, state, rng.choice(habits.slips), rng, link)
        if slip is not None:
            return slip
    return safe_step(problem, state, link)


def safe_step(problem: Problem, state: State, link: str = LINKS[0]) -> str:
    """``right_step``, or the early answer where a wrong value has left the world's range."""
    text = right_step(problem, state, link)
    verdict = assess(problem, state, text)
    within = verdict is not None and 0 <= verdict.state.value <= problem.scale.written
    return text if within else answer_text(state.value)


def write_solution(problem: Problem, rng: random.Random, habits: Habits) -> list[Written]:
    """A whole solution up to its boxed answer; later steps carry earlier wrong values on."""
    state, steps = begin(problem), list[Written]()
    while not state.ended:
        text = draw_step(problem, state, rng, habits)
        steps.append(assess_written(problem, state, text))
        state = steps[-1].verdict.state
    return steps


def assess_written(problem: Problem, state: State, text: str) -> Written:
    """A written step with its verdict; raises ``AssertionError`` for text outside the grammar."""
    verdict = assess(problem, state, text)
    if verdict is None:
        raise AssertionError(f"the writer left the grammar: {text!r}")
    return Written(state, text, verdict)
