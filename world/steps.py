"""Solutions of the world's stories: best steps, typed faults, and solvers with human habits.

Every draw comes from the ``random.Random`` argument, so equal generators give equal texts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from world import oracle
from world.oracle import BARE, LINKS, Aside, Claim, Remark, State, Step, Verdict, answer_text, assess, text_of
from world.story import LARGEST_NUMBER, SIGN, TRICKY, Problem, compute

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Habits:
    """The writing habits of a solver, as probabilities per step.

    ``misread`` applies to the hero's tricky events. ``slip`` applies to any step and draws a typed fault from
    ``slips``. ``idle`` inserts a step that does not help. ``flourish`` replaces the standard link.
    """

    misread: float = 0.0
    slip: float = 0.0
    idle: float = 0.0
    flourish: float = 0.15
    slips: tuple[str, ...] = ("arithmetic", "amount", "carried", "skipped", "person", "operation", "early")


_WEIGHTS = {"name": 4, "verb": 2, "amount": 2, "skipped": 2}
"""Weights of the kinds of slips that would otherwise be rare if slips are drawn evenly."""
POLICY_HABITS = Habits(misread=0.55, slip=0.06, idle=0.04)
"""The human-like solver that the policy imitates: it misreads half of the tricky events."""
PREFIX_HABITS = Habits(misread=0.15, slip=0.06, idle=0.08)
"""The solver whose steps are verified."""


def _best(problem: Problem, state: State, link: str = LINKS[0]) -> Claim | Aside | Remark:
    """The best next step; a bare line skips the events of other people."""
    own = oracle.next_own(problem, state)
    if link == BARE and (own < len(problem.events) or not oracle.is_early(problem, state)):
        state = replace(state, done=own)
    if state.done == len(problem.events):
        return Remark("answer", value=state.value)
    actor = problem.events[state.done].actor
    is_about_hero = actor == problem.hero
    return _claim(problem, state) if is_about_hero else Aside(state.done + 1, actor, state.value, problem.noun)


def _claim(problem: Problem, state: State) -> Claim:
    event = problem.events[state.done]
    result = compute(state.value, event.sign, event.amount)
    return Claim(state.done + 1, event.verb, event.object, state.value, event.sign, event.amount, result, problem.noun)


def fault_step(problem: Problem, state: State, fault: str, rng: random.Random, link: str = LINKS[0]) -> Verdict | None:
    """A step after ``state`` with exactly this fault; ``None`` if no such step can be written."""
    link = BARE if problem.is_sum else LINKS[0] if fault in ("contradiction", "repetition", "person") else link
    step = _faulty(problem, state, fault, rng, link)
    if step is None:
        return None
    verdict = assess(problem, state, text_of(step, link))
    if verdict is None or verdict.after.value > problem.scale.written or (verdict.step.value or 0) > LARGEST_NUMBER:
        return None
    return verdict if verdict.faults == (fault,) else None


def _faulty(problem: Problem, state: State, fault: str, rng: random.Random, link: str) -> Step | None:
    """A step that may have the fault, and may have further faults."""
    value, best = state.value, _best(problem, state, link)
    amounts = range(1, problem.scale.amounts + 1)
    others = [name for name in problem.language.names if name != problem.hero]
    claims = [claim for claim in state.claims if isinstance(claim, Claim)]
    match best, fault:
        case _, "restatement" | "circular":
            return Remark(fault, value=value, noun=problem.noun)
        case _, "repetition" if state.claims:
            return rng.choice(state.claims)
        case _, "contradiction" if claims:
            return _changed(rng.choice(claims), value=value)
        case Remark(), "answer":
            return Remark(fault, value=_nearby(rng, value))
        case Remark(), _:
            return None
        case _, "planning":
            return Remark(fault, best.event)
        case _, "early":
            return Remark("answer", value=value)
        case _, "skipped" if best.event < len(problem.events):
            return _best(problem, replace(state, done=best.event))
        case _, "unit":
            return replace(best, noun=_other(rng, problem.language.nouns, best.noun))
        case Aside(), "carried":
            return replace(best, value=_nearby(rng, value))
        case Aside(), "name":
            return replace(best, name=_other(rng, others, best.name))
        case Aside(), "person":
            return _claim(problem, state)
        case Claim(), "person":
            return Aside(best.event, rng.choice(others), value, problem.noun)
        case Claim(), "carried":
            values = [value + d for d in (-3, -2, -1, 1, 2, 3)]
            return _changed(best, value=rng.choice([*values, problem.start, *(claim.value for claim in claims)]))
        case Claim(), "arithmetic":
            return replace(best, result=_nearby(rng, best.result))
        case Claim(), "misreading" | "operation":
            return _changed(best, sign=_other(rng, "+-", best.sign))
        case Claim(), "operand":
            return _changed(best, right=_other(rng, amounts, best.right))
        case Claim(), "amount":
            amount = _other(rng, amounts, best.right)
            return _changed(best, object=str(amount), right=amount)
        case Claim(), "verb":
            verb = _other(rng, problem.language.verbs, best.verb)
            return _changed(best, verb=verb, sign=SIGN[verb])
    return None


def _changed(claim: Claim, **changes: Any) -> Claim:
    """The claim with other content, and the result recomputed."""
    new = replace(claim, **changes)
    return replace(new, result=compute(new.value, new.sign, new.right))


def _nearby(rng: random.Random, value: int) -> int:
    value = max(value, 0)  # a carried error can make the value negative
    return rng.choice([value + d for d in (-3, -2, -1, -1, 1, 1, 2, 3) if value + d >= 0])


def _other(rng: random.Random, choices: Sequence[T], avoid: T) -> T:
    return rng.choice([choice for choice in choices if choice != avoid])


def draw_link(rng: random.Random, flourish: float, problem: Problem) -> str:
    """The usual link. With probability ``flourish``, a different link, or none if the language has bare lines."""
    if problem.language.bare and rng.random() < problem.language.bare:
        return BARE
    return rng.choice(LINKS[1:]) if rng.random() < flourish else LINKS[0]


def draw_step(problem: Problem, state: State, rng: random.Random, habits: Habits) -> Verdict:
    """The next step as a solver with ``habits`` writes it."""
    link = draw_link(rng, habits.flourish, problem)
    if rng.random() < habits.idle and (idle := fault_step(problem, state, rng.choice(oracle.SUBOPTIMAL), rng)):
        return idle
    best = _best(problem, state, link)
    is_tricky = isinstance(best, Claim) and best.verb in TRICKY
    fault = None
    if is_tricky and rng.random() < habits.misread:
        fault = fault_step(problem, state, "misreading", rng, link)
    if fault is None and rng.random() < habits.slip:
        fault = _slip(problem, state, rng, habits.slips, link)
    return fault or safe_step(problem, state, link)


def _slip(problem: Problem, state: State, rng: random.Random, kinds: Sequence[str], link: str) -> Verdict | None:
    if not problem.language.even_slips:
        return fault_step(problem, state, rng.choice(kinds), rng, link)
    found = [slip for kind in kinds if (slip := fault_step(problem, state, kind, rng, link))]
    weights = [_WEIGHTS.get(slip.faults[0], 1) for slip in found]
    # Slips are rarer in places that allow few kinds, such as the answer.
    return rng.choices([*found, None], [*weights, max(0, len(kinds) - sum(weights))])[0] if found else None


def safe_step(problem: Problem, state: State, link: str = LINKS[0]) -> Verdict:
    """The best next step, or an early answer if a carried error has left the world's range of numbers."""
    link = BARE if problem.is_sum else link
    verdict = assess(problem, state, text_of(_best(problem, state, link), link))
    if verdict and 0 <= verdict.after.value <= problem.scale.written:
        return verdict
    answer = Remark("answer", value=state.value)
    return oracle.assess_step(problem, state, answer, text_of(answer))


def write_solution(problem: Problem, rng: random.Random, habits: Habits) -> list[Verdict]:
    """A whole solution up to its boxed answer; later steps continue from earlier incorrect values."""
    state, steps = oracle.begin(problem), list[Verdict]()
    while not state.ended:
        steps.append(draw_step(problem, state, rng, habits))
        state = steps[-1].after
    return steps


def _kind(problem: Problem, rng: random.Random, kinds: Sequence[str]) -> str:
    if not problem.language.even_slips:
        return rng.choice(kinds)
    return rng.choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds])[0]


def draw_candidate(rng: random.Random, problem: Problem, written: Verdict) -> Verdict:
    """A step to verify in place of ``written``: 45 % are correct, the rest have a fault of any kind."""
    link = draw_link(rng, 0.2, problem)
    draw = rng.random()
    if draw < 0.45:
        return safe_step(problem, written.before, link)
    kinds = oracle.SUBOPTIMAL if draw > 0.93 else oracle.ERRORS
    for _ in range(6):
        if faulty := fault_step(problem, written.before, _kind(problem, rng, kinds), rng, link):
            return faulty
    return written


def scrambled(rng: random.Random, problem: Problem, state: State, by_words: bool = False) -> str | None:
    """The next step with each word right or wrong at random, which gives ``word_questions`` many "no" answers.

    ``by_words`` favours errors in verbs, signs and names over errors in numbers. Returns ``None`` if the result is not
    a number of the world.
    """
    in_number, in_result, in_sign, in_verb, in_name = (
        (0.08, 0.08, 0.4, 0.3, 0.5) if by_words else (0.3, 0.35, 0.2, 0.15, 0.3)
    )

    def wrong(share: float) -> bool:
        return rng.random() < share

    def other(number: int) -> int:
        return min(max(0, number + rng.choice((-4, -3, -2, -1, 1, 2, 3, 4))), LARGEST_NUMBER)

    if state.done >= len(problem.events):
        return answer_text(other(state.value) if wrong(0.5) else state.value)
    number = rng.randint(1, len(problem.events)) if wrong(0.1) else state.done + 1
    event = problem.events[number - 1]
    noun = rng.choice(problem.language.nouns) if wrong(0.2) else problem.noun
    left = other(state.value) if wrong(in_number) else state.value
    if event.actor != problem.hero and not wrong(0.3):
        return text_of(Aside(number, rng.choice(problem.language.names) if wrong(in_name) else event.actor, left, noun))
    verb = rng.choice(problem.language.verbs) if wrong(in_verb) else event.verb
    # "amount" is a separate fault only if the verb is right, so the object changes only in that case.
    amounts = problem.scale.amounts
    object_ = str(rng.randint(1, amounts)) if verb == event.verb and wrong(0.25) else event.object
    sign = rng.choice("+-") if wrong(in_sign) else SIGN.get(verb, verb)
    right = rng.randint(1, amounts) if wrong(in_number) else 2 if object_ == "them" else int(object_)
    result = compute(left, sign, right)
    result = other(result) if wrong(in_result) else result
    if not 0 <= result <= problem.scale.written:
        return None
    link = draw_link(rng, 0.2, problem)
    claim = Claim(number, verb, object_, left, sign, right, result, noun)
    return text_of(claim, BARE if problem.is_sum else link)


def draw_step_to_verify(
    rng: random.Random, problem: Problem, written: Verdict, scramble: float, by_words: bool = False
) -> Verdict:
    """With probability ``scramble`` a scrambled step, otherwise a ``draw_candidate``."""
    mixed = scrambled(rng, problem, written.before, by_words) if scramble and rng.random() < scramble else None
    verdict = assess(problem, written.before, mixed) if mixed else None
    return verdict or draw_candidate(rng, problem, written)
