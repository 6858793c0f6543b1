"""The small world: arithmetic stories whose every solution step has a known truth.

A story is a start, numbered events and a question::

    Tom has 5 apples.
    1) Tom buys 7.
    2) Ann sells 6.
    3) Tom takes back 2.
    How many apples does Tom have?

and a solution takes the events in order, one step each, then boxes the answer::

    1) buys 7, so 5 + 7 = 12 apples.
    2) is about Ann, so still 12 apples.
    3) takes back 2, so 12 + 2 = 14 apples.
    The answer is \\boxed{14}.

``assess`` labels any step that follows the grammar, whoever wrote it: mathematics (is the step valid on its own),
consistency (with the story and the steps before it), optimality (does it help), in the sense of the judge prompt's
criteria A, B and C (paper section 3.2). "takes back" and "gives back" are the planted misconception: solvers often
read them the wrong way round.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

NAMES = ("Tom", "Ann", "Bob", "Eve", "Sam", "Mia", "Leo", "Zoe", "Max", "Ida")
NOUNS = ("apples", "pears", "coins", "books", "cards", "stamps", "shells", "beads", "pens", "plums")
TAKES_BACK, GIVES_BACK = "takes back", "gives back"
TRICKY = (TAKES_BACK, GIVES_BACK)
DOUBLES = "doubles"
SIGN = {
    "buys": "+",
    "finds": "+",
    "gets": "+",
    TAKES_BACK: "+",
    "sells": "-",
    "loses": "-",
    "uses": "-",
    GIVES_BACK: "-",
    DOUBLES: "*",
}
PLAIN = tuple(verb for verb in SIGN if verb not in TRICKY and verb != DOUBLES)
LINKS = (", so ", ", which makes ", ", hence ", ", so clearly ")
"""How a step goes over to its equation; the first is the usual one, the last the confident one."""


@dataclass(frozen=True, slots=True)
class Level:
    """How hard a story is; shares are probabilities per event."""

    name: str
    events: tuple[int, int]
    largest: int
    distractors: float
    tricky: float = 0.28
    doubles: float = 0.0


LEVELS = {
    level.name: level
    for level in (
        Level("gsm8k", (2, 3), 19, 0.15),
        Level("math", (3, 4), 19, 0.2, doubles=0.05),
        Level("olympiadbench", (4, 5), 24, 0.2, doubles=0.08),
        Level("omnimath", (5, 7), 29, 0.25, doubles=0.08),
    )
}
"""Named after the ProcessBench subsets whose place in the order of difficulty they take."""


@dataclass(frozen=True, slots=True)
class Event:
    """One numbered line of a story; ``amount`` is 2 for doubling."""

    actor: str
    verb: str
    amount: int

    @property
    def object(self) -> str:
        """What stands behind the verb: the amount, or "them" for doubling."""
        return "them" if self.verb == DOUBLES else str(self.amount)


@dataclass(frozen=True, slots=True)
class Problem:
    """A story and its truth."""

    level: str
    hero: str
    noun: str
    start: int
    events: tuple[Event, ...]

    @property
    def text(self) -> str:
        """The story as the models read it."""
        lines = [f"{i}) {e.actor} {e.verb} {e.object}." for i, e in enumerate(self.events, start=1)]
        head, tail = f"{self.hero} has {self.start} {self.noun}.", f"How many {self.noun} does {self.hero} have?"
        return "\n".join([head, *lines, tail])

    @property
    def values(self) -> tuple[int, ...]:
        """True values after 0, 1, … events."""
        values = [self.start]
        for event in self.events:
            mine = event.actor == self.hero
            values.append(compute(values[-1], SIGN[event.verb], event.amount) if mine else values[-1])
        return tuple(values)

    @property
    def answer(self) -> int:
        """The true answer."""
        return self.values[-1]


def compute(left: int, sign: str, right: int) -> int:
    """``left sign right`` for the three signs of the world."""
    return left + right if sign == "+" else left - right if sign == "-" else left * right


def sample_problem(rng: random.Random, level: Level) -> Problem:
    """A story of a level; every value stays within ``0 … level.largest``."""
    while True:
        hero, *others = rng.sample(NAMES, 3)
        noun = rng.choice(NOUNS)
        start = value = rng.randint(2, 9)
        events: list[Event] = []
        for _ in range(rng.randint(*level.events)):
            if rng.random() < level.distractors:
                verb = rng.choice(PLAIN + TRICKY)
                events.append(Event(rng.choice(others), verb, rng.randint(1, 9)))
                continue
            event = _own_event(rng, level, hero, value)
            value = compute(value, SIGN[event.verb], event.amount)
            events.append(event)
        if any(event.actor == hero for event in events):
            return Problem(level.name, hero, noun, start, tuple(events))


def _own_event(rng: random.Random, level: Level, hero: str, value: int) -> Event:
    while True:
        draw = rng.random()
        if draw < level.tricky:
            verb = rng.choice(TRICKY)
        elif draw < level.tricky + level.doubles:
            verb = DOUBLES
        else:
            verb = rng.choice(PLAIN)
        amount = 2 if verb == DOUBLES else rng.randint(1, 9)
        # A tricky event must allow both readings, or its misreading could not be written down.
        signs = "+-" if verb in TRICKY else SIGN[verb]
        if all(0 <= compute(value, sign, amount) <= level.largest for sign in signs) and (verb != DOUBLES or value):
            return Event(hero, verb, amount)


@dataclass(frozen=True, slots=True)
class Claim:
    """What an event step says, without its wording."""

    event: int
    verb: str
    object: str
    left: int
    sign: str
    right: int
    result: int
    noun: str


@dataclass(frozen=True, slots=True)
class Aside:
    """What a step about somebody else's event says."""

    event: int
    name: str
    value: int
    noun: str


@dataclass(frozen=True, slots=True)
class State:
    """Where a solution stands, by its own words: events handled, value last stated, claims made."""

    done: int
    value: int
    claims: tuple[Claim | Aside, ...] = ()
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The truth about one step: 0 or 1 for the three criteria, the faults by name, and the state after it."""

    math: int
    consistency: int
    optimality: int
    faults: tuple[str, ...]
    state: State

    @property
    def sound(self) -> bool:
        """Neither a mathematical nor a consistency error."""
        return bool(self.math and self.consistency)

    @property
    def rating(self) -> int:
        """The rating a careful human gives: 1 good, 0 not helpful, -1 wrong (PRM800K's scale)."""
        return -1 if not self.sound else self.optimality


MATH_FAULTS = ("arithmetic", "operation", "misreading", "operand")
CONSISTENCY_FAULTS = (
    "amount", "verb", "carried", "unit", "person", "name", "skipped", "event", "contradiction", "early", "answer",
)  # fmt: skip
SUBOPTIMAL = ("repetition", "restatement", "circular", "planning")

_N = r"(0|[1-9]\d{0,2})"
_NOUN = f"({'|'.join(NOUNS)})"
_CLAIM = re.compile(
    rf"([1-9])\) ({'|'.join(SIGN)}) (them|{_N[1:-1]})(?:{'|'.join(LINKS)}){_N} ([-+*]) {_N} = {_N} {_NOUN}\."
)
_ASIDE = re.compile(rf"([1-9])\) is about ({'|'.join(NAMES)}), so still {_N} {_NOUN}\.")
_ANSWER = re.compile(rf"The answer is \\boxed\{{{_N}\}}\.")
_RESTATEMENT = re.compile(rf"So far that is {_N} {_NOUN}\.")
_CIRCULAR = re.compile(rf"If that is {_N} {_NOUN}, then {_N} {_NOUN} it is\.")
_PLANNING = re.compile(r"Next we read ([1-9])\)\.")


def begin(problem: Problem) -> State:
    """The state before the first step."""
    return State(0, problem.start)


def assess(problem: Problem, state: State, step: str) -> Verdict | None:
    """The exact labels of a step after ``state``, or ``None`` for text outside the grammar."""
    if match := _CLAIM.fullmatch(step):
        event, verb, object_, left, sign, right, result, noun = match.groups()
        claim = Claim(int(event), verb, object_, int(left), sign, int(right), int(result), noun)
        return _assess_claim(problem, state, claim)
    if match := _ASIDE.fullmatch(step):
        aside = Aside(int(match[1]), match[2], int(match[3]), match[4])
        return _assess_aside(problem, state, aside)
    if match := _ANSWER.fullmatch(step):
        value = int(match[1])
        faults = ["early"] * (state.done < len(problem.events)) + ["answer"] * (value != state.value)
        return _verdict(faults, replace(state, value=value, ended=True))
    if match := _RESTATEMENT.fullmatch(step):
        return _assess_idle(problem, state, "restatement", ((int(match[1]), match[2]),))
    if match := _CIRCULAR.fullmatch(step):
        return _assess_idle(problem, state, "circular", ((int(match[1]), match[2]), (int(match[3]), match[4])))
    if match := _PLANNING.fullmatch(step):
        wrong = int(match[1]) != state.done + 1 or int(match[1]) > len(problem.events)
        return _verdict(["planning"] + ["event"] * wrong, state)
    return None


def _verdict(faults: list[str], state: State) -> Verdict:
    return Verdict(
        math=int(not any(f in MATH_FAULTS for f in faults)),
        consistency=int(not any(f in CONSISTENCY_FAULTS for f in faults)),
        optimality=int(not any(f in SUBOPTIMAL for f in faults)),
        faults=tuple(faults),
        state=state,
    )


def _order_faults(problem: Problem, state: State, claim: Claim | Aside) -> list[str]:
    if claim.event > len(problem.events):
        return ["event"]
    if claim.event <= state.done:
        return ["repetition"] if claim in state.claims else ["contradiction"]
    return ["skipped"] * (claim.event > state.done + 1)


def _assess_claim(problem: Problem, state: State, claim: Claim) -> Verdict:
    faults: list[str] = []
    operand = 2 if claim.object == "them" else int(claim.object)
    if claim.sign != SIGN[claim.verb]:
        faults.append("misreading" if claim.verb in TRICKY else "operation")
    if claim.right != operand:
        faults.append("operand")
    if compute(claim.left, claim.sign, claim.right) != claim.result:
        faults.append("arithmetic")
    order = _order_faults(problem, state, claim)
    faults += order
    if "event" not in order and "repetition" not in order:
        event = problem.events[claim.event - 1]
        faults += ["person"] * (event.actor != problem.hero)
        faults += ["verb"] * (event.verb != claim.verb)
        faults += ["amount"] * (event.verb == claim.verb and event.object != claim.object)
        faults += ["carried"] * (claim.left != state.value)
    faults += ["unit"] * (claim.noun != problem.noun)
    if "repetition" in order:
        return _verdict(faults, state)
    after = replace(state, done=max(state.done, claim.event), value=claim.result, claims=(*state.claims, claim))
    return _verdict(faults, after)


def _assess_aside(problem: Problem, state: State, aside: Aside) -> Verdict:
    order = _order_faults(problem, state, aside)
    faults = list(order)
    if "event" not in order and "repetition" not in order:
        actor = problem.events[aside.event - 1].actor
        faults += ["person"] * (actor == problem.hero)
        faults += ["name"] * (actor != aside.name and actor != problem.hero)
        faults += ["carried"] * (aside.value != state.value)
    faults += ["unit"] * (aside.noun != problem.noun)
    if "repetition" in order:
        return _verdict(faults, state)
    after = replace(state, done=max(state.done, aside.event), value=aside.value, claims=(*state.claims, aside))
    return _verdict(faults, after)


def _assess_idle(problem: Problem, state: State, kind: str, said: tuple[tuple[int, str], ...]) -> Verdict:
    faults = [kind]
    faults += ["carried"] * any(value != state.value for value, _ in said)
    faults += ["unit"] * any(noun != problem.noun for _, noun in said)
    return _verdict(faults, state)


def assess_all(problem: Problem, steps: list[str]) -> list[Verdict | None]:
    """Verdicts of a whole solution; from the first step outside the grammar on they are ``None``."""
    verdicts: list[Verdict | None] = []
    state: State | None = begin(problem)
    for step in steps:
        verdict = assess(problem, state, step) if state is not None else None
        verdicts.append(verdict)
        state = verdict.state if verdict else None
    return verdicts
