"""Solutions of the world's stories: best steps, typed faults, and solvers with human habits.

Every draw comes from the ``random.Random`` argument, so equal generators give equal texts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pathfinder.world.oracle import ERRORS, LINKS, SUBOPTIMAL, Aside, Claim, State, Verdict, answer_text, assess, begin
from pathfinder.world.story import NAMES, NOUNS, SIGN, TRICKY, VERBS, Event, Problem, compute

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Habits:
    """How a solver writes, as probabilities per step.

    ``misread`` applies to the hero's tricky events. ``slip`` applies to any step and draws a typed fault from
    ``slips``. ``idle`` inserts a step that does not help. ``flourish`` replaces the usual link.
    """

    misread: float = 0.0
    slip: float = 0.0
    idle: float = 0.0
    flourish: float = 0.15
    slips: tuple[str, ...] = ("arithmetic", "amount", "carried", "skipped", "person", "operation", "early")


POLICY_HABITS = Habits(misread=0.55, slip=0.06, idle=0.04)
"""The human-like solver that the policy imitates: it misreads half of the tricky events."""
PREFIX_HABITS = Habits(misread=0.15, slip=0.06, idle=0.08)
"""The solver whose steps are verified."""


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step, the state before it and its verdict."""

    before: State
    text: str
    verdict: Verdict


def best_step(problem: Problem, state: State, link: str = LINKS[0]) -> str:
    """The best next step after ``state``."""
    event = _next_event(problem, state)
    if event is None:
        return answer_text(state.value)
    if event.actor != problem.hero:
        return Aside(state.done + 1, event.actor, state.value, problem.noun).text()
    return _true_claim(problem, state, event).text(link)


def _next_event(problem: Problem, state: State) -> Event | None:
    return problem.events[state.done] if state.done < len(problem.events) else None


def _true_claim(problem: Problem, state: State, event: Event) -> Claim:
    sign = SIGN[event.verb]
    result = compute(state.value, sign, event.amount)
    return Claim(state.done + 1, event.verb, event.object, state.value, sign, event.amount, result, problem.noun)


def fault_step(problem: Problem, state: State, fault: str, rng: random.Random, link: str = LINKS[0]) -> str | None:
    """A step after ``state`` with exactly this fault, or ``None`` if it cannot be written there."""
    text: str | None
    event = _next_event(problem, state)
    if fault in SUBOPTIMAL:
        text = _idle_step(problem, state, fault, rng)
    elif fault == "early":
        text = answer_text(state.value) if event else None
    elif fault == "contradiction":
        text = _contradiction(state, rng)
    elif fault == "skipped":
        is_last = state.done + 1 >= len(problem.events)
        text = None if is_last else best_step(problem, replace(state, done=state.done + 1), link)
    elif event is None:
        text = answer_text(_nearby(rng, state.value)) if fault == "answer" else None
    elif event.actor != problem.hero:
        text = _aside_fault(problem, state, event, fault, rng)
    else:
        text = _claim_fault(problem, state, event, fault, rng, link)
    if text is None:
        return None
    verdict = assess(problem, state, text)
    return text if verdict and verdict.faults == (fault,) and verdict.state.value <= problem.scale.written else None


def _contradiction(state: State, rng: random.Random) -> str | None:
    claims = _claims(state)
    if not claims:
        return None
    again = _recomputed(replace(rng.choice(claims), left=state.value))
    return again.text() if again.result >= 0 else None


def _claims(state: State) -> list[Claim]:
    return [claim for claim in state.claims if isinstance(claim, Claim)]


def _aside_fault(problem: Problem, state: State, event: Event, fault: str, rng: random.Random) -> str | None:
    aside = Aside(state.done + 1, event.actor, state.value, problem.noun)
    match fault:
        case "carried":
            return replace(aside, value=_nearby(rng, state.value)).text()
        case "unit":
            return replace(aside, noun=_other(rng, NOUNS, problem.noun)).text()
        case "name":
            return replace(aside, name=_other(rng, _others(problem), event.actor)).text()
        case "person":
            return _true_claim(problem, state, event).text()
    return None


def _claim_fault(problem: Problem, state: State, event: Event, fault: str, rng: random.Random, link: str) -> str | None:
    claim = _true_claim(problem, state, event)
    amounts = range(1, problem.scale.amounts + 1)
    match fault:
        case "arithmetic":
            claim = replace(claim, result=_nearby(rng, claim.result))
        case "misreading" | "operation":
            claim = _recomputed(replace(claim, sign=_other(rng, "+-", claim.sign)))
        case "operand":
            claim = _recomputed(replace(claim, right=_other(rng, amounts, claim.right)))
        case "amount":
            amount = _other(rng, amounts, claim.right)
            claim = _recomputed(replace(claim, object=str(amount), right=amount))
        case "verb":
            verb = _other(rng, VERBS, claim.verb)
            claim = _recomputed(replace(claim, verb=verb, sign=SIGN[verb]))
        case "carried":
            stated = [problem.start, *(earlier.left for earlier in _claims(state))]
            lefts = [state.value + d for d in (-3, -2, -1, 1, 2, 3)] + stated
            claim = _recomputed(replace(claim, left=rng.choice(lefts)))
        case "person":
            return Aside(state.done + 1, rng.choice(_others(problem)), state.value, problem.noun).text()
        case "unit":
            claim = replace(claim, noun=_other(rng, NOUNS, claim.noun))
        case _:
            return None
    return claim.text(link) if min(claim.left, claim.result) >= 0 else None


def _others(problem: Problem) -> list[str]:
    return [name for name in NAMES if name != problem.hero]


def _recomputed(claim: Claim) -> Claim:
    return replace(claim, result=compute(claim.left, claim.sign, claim.right))


def _nearby(rng: random.Random, value: int) -> int:
    value = max(value, 0)  # a carried error can make the value negative
    return rng.choice([value + d for d in (-3, -2, -1, -1, 1, 1, 2, 3) if value + d >= 0])


def _other(rng: random.Random, choices: Sequence[T], avoid: T) -> T:
    return rng.choice([choice for choice in choices if choice != avoid])


def _idle_step(problem: Problem, state: State, kind: str, rng: random.Random) -> str | None:
    value = f"{state.value} {problem.noun}"
    match kind:
        case "restatement":
            return f"So far that is {value}."
        case "circular":
            return f"If that is {value}, then {value} it is."
        case "planning":
            return f"Next we read {state.done + 1})." if _next_event(problem, state) else None
    return rng.choice(state.claims).text() if state.claims else None


def draw_link(rng: random.Random, flourish: float) -> str:
    """The usual link, or another one with probability ``flourish``."""
    return rng.choice(LINKS[1:]) if rng.random() < flourish else LINKS[0]


def draw_step(problem: Problem, state: State, rng: random.Random, habits: Habits) -> str:
    """The next step as a solver with ``habits`` writes it."""
    link = draw_link(rng, habits.flourish)
    if rng.random() < habits.idle:
        idle = fault_step(problem, state, rng.choice(SUBOPTIMAL), rng)
        if idle is not None:
            return idle
    event = _next_event(problem, state)
    is_tricky = event is not None and event.actor == problem.hero and event.verb in TRICKY
    fault = None
    if is_tricky and rng.random() < habits.misread:
        fault = fault_step(problem, state, "misreading", rng, link)
    if fault is None and rng.random() < habits.slip:
        fault = fault_step(problem, state, rng.choice(habits.slips), rng, link)
    return fault or safe_step(problem, state, link)


def safe_step(problem: Problem, state: State, link: str = LINKS[0]) -> str:
    """``best_step``, or an early answer if a carried error has left the world's range of numbers."""
    text = best_step(problem, state, link)
    verdict = assess(problem, state, text)
    within = verdict is not None and 0 <= verdict.state.value <= problem.scale.written
    return text if within else answer_text(state.value)


def write_solution(problem: Problem, rng: random.Random, habits: Habits) -> list[WrittenStep]:
    """A whole solution up to its boxed answer; later steps continue from earlier incorrect values."""
    state, steps = begin(problem), list[WrittenStep]()
    while not state.ended:
        text = draw_step(problem, state, rng, habits)
        steps.append(written_step(problem, state, text))
        state = steps[-1].verdict.state
    return steps


def written_step(problem: Problem, state: State, text: str) -> WrittenStep:
    """A step with its verdict.

    Raises ``AssertionError`` for text outside the grammar.
    """
    verdict = assess(problem, state, text)
    if verdict is None:
        raise AssertionError(f"the writer left the grammar: {text!r}")
    return WrittenStep(state, text, verdict)


def draw_candidate(rng: random.Random, problem: Problem, written: WrittenStep) -> str:
    """A step to verify in the place of ``written``: 45 % correct, the others with a fault drawn evenly."""
    link = draw_link(rng, 0.2)
    draw = rng.random()
    if draw < 0.45:
        return safe_step(problem, written.before, link)
    kinds = SUBOPTIMAL if draw > 0.93 else ERRORS
    for _ in range(6):
        text = fault_step(problem, written.before, rng.choice(kinds), rng, link)
        if text is not None:
            return text
    return written.text


def scrambled(rng: random.Random, problem: Problem, state: State, by_words: bool = False) -> str | None:
    """The next step with each word right or wrong at random, which gives ``word_questions`` many "no" answers.

    ``by_words`` favours errors in verbs, signs and names over errors in numbers. Returns ``None`` if the result leaves
    the world's range of numbers.
    """
    in_number, in_result, in_sign, in_verb, in_name = (
        (0.08, 0.08, 0.4, 0.3, 0.5) if by_words else (0.3, 0.35, 0.2, 0.15, 0.3)
    )

    def wrong(share: float) -> bool:
        return rng.random() < share

    def other(number: int) -> int:
        return max(0, number + rng.choice((-4, -3, -2, -1, 1, 2, 3, 4)))

    if state.done >= len(problem.events):
        return answer_text(other(state.value) if wrong(0.5) else state.value)
    number = rng.randint(1, len(problem.events)) if wrong(0.1) else state.done + 1
    event = problem.events[number - 1]
    noun = rng.choice(NOUNS) if wrong(0.2) else problem.noun
    left = other(state.value) if wrong(in_number) else state.value
    if event.actor != problem.hero and not wrong(0.3):
        return Aside(number, rng.choice(NAMES) if wrong(in_name) else event.actor, left, noun).text()
    verb = rng.choice(VERBS) if wrong(in_verb) else event.verb
    # "amount" is a fault of its own only with the right verb, so the object changes only then.
    amounts = problem.scale.amounts
    object_ = str(rng.randint(1, amounts)) if verb == event.verb and wrong(0.25) else event.object
    sign = rng.choice("+-") if wrong(in_sign) else SIGN[verb]
    right = rng.randint(1, amounts) if wrong(in_number) else 2 if object_ == "them" else int(object_)
    result = compute(left, sign, right)
    result = other(result) if wrong(in_result) else result
    if not 0 <= result <= problem.scale.written:
        return None
    return Claim(number, verb, object_, left, sign, right, result, noun).text(draw_link(rng, 0.2))


def draw_step_to_verify(
    rng: random.Random, problem: Problem, written: WrittenStep, scramble: float, by_words: bool = False
) -> str:
    """With probability ``scramble`` a scrambled step, otherwise a ``draw_candidate``."""
    mixed = scrambled(rng, problem, written.before, by_words) if scramble and rng.random() < scramble else None
    return mixed if mixed is not None else draw_candidate(rng, problem, written)
