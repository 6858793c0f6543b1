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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pathfinder.core.records import problem_id

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
class Scale:
    """The numbers of a world: starts and amounts go up to ``amounts``; no written number is above ``written``, so that
    tiny models meet every number often. Numbers up to 99 are one token each, and a wrong one is up to 9 too high."""

    amounts: int = 9
    written: int = 39


SCALE = Scale()


@dataclass(frozen=True, slots=True)
class Level:
    """How hard a story is; shares are probabilities per event."""

    name: str
    events: tuple[int, int]
    largest: int
    distractors: float
    tricky: float = 0.28
    doubles: float = 0.0
    scale: Scale = SCALE


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
RICH = Scale(amounts=19, written=89)
WORLDS: dict[str, Mapping[str, Level]] = {
    "small": LEVELS,
    "rich": {
        level.name: level
        for level in (
            Level("gsm8k", (2, 4), 49, 0.2, tricky=0.33, doubles=0.05, scale=RICH),
            Level("math", (4, 6), 59, 0.25, tricky=0.33, doubles=0.1, scale=RICH),
            Level("olympiadbench", (5, 8), 69, 0.3, tricky=0.36, doubles=0.1, scale=RICH),
            Level("omnimath", (7, 9), 79, 0.35, tricky=0.36, doubles=0.12, scale=RICH),
        )
    },
}
"""The same grammar and oracle at two sizes: ``rich`` has larger numbers, longer stories, more asides and doublings, and
the planted misconception more often."""


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
    scale: Scale = SCALE

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
        start = value = rng.randint(2, level.scale.amounts)
        events: list[Event] = []
        for _ in range(rng.randint(*level.events)):
            if rng.random() < level.distractors:
                verb = rng.choice(PLAIN + TRICKY)
                events.append(Event(rng.choice(others), verb, rng.randint(1, level.scale.amounts)))
                continue
            event = _own_event(rng, level, hero, value)
            value = compute(value, SIGN[event.verb], event.amount)
            events.append(event)
        if any(event.actor == hero for event in events):
            return Problem(level.name, hero, noun, start, tuple(events), level.scale)


def _own_event(rng: random.Random, level: Level, hero: str, value: int) -> Event:
    while True:
        draw = rng.random()
        if draw < level.tricky:
            verb = rng.choice(TRICKY)
        elif draw < level.tricky + level.doubles:
            verb = DOUBLES
        else:
            verb = rng.choice(PLAIN)
        amount = 2 if verb == DOUBLES else rng.randint(1, level.scale.amounts)
        # A tricky event must allow both readings, or its misreading could not be written down.
        signs = "+-" if verb in TRICKY else SIGN[verb]
        if all(0 <= compute(value, sign, amount) <= level.largest for sign in signs) and (verb != DOUBLES or value):
            return Event(hero, verb, amount)


Split = Literal["train", "benchmark", "search", "held_out"]


def split_of(problem: Problem) -> Split:
    """Which part of the world a story belongs to, by the digest of its text: no story is in two parts.

    ``train`` feeds pretraining and the corpora, ``held_out`` nothing but our own measurements.
    """
    bucket = int(problem_id(problem.text)[:8], 16) % 10
    splits: dict[int, Split] = {0: "benchmark", 1: "search", 2: "held_out"}
    return splits.get(bucket, "train")


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
_CIRCULAR = re.compile(rf"If that is {_N} {_NOUN}, then \1 \2 it is\.")
_PLANNING = re.compile(r"Next we read ([1-9])\)\.")


@dataclass(frozen=True, slots=True)
class Said:
    """What a step says: its kind and whatever of event, value before, noun and claim it names."""

    kind: str
    event: int | None = None
    value: int | None = None
    noun: str | None = None
    body: Claim | Aside | None = None


def parse(step: str) -> Said | None:
    """Read a step of the grammar; ``None`` for any other text."""
    if match := _CLAIM.fullmatch(step):
        event, verb, object_, left, sign, right, result, noun = match.groups()
        claim = Claim(int(event), verb, object_, int(left), sign, int(right), int(result), noun)
        return Said("claim", claim.event, claim.left, noun, claim)
    if match := _ASIDE.fullmatch(step):
        aside = Aside(int(match[1]), match[2], int(match[3]), match[4])
        return Said("aside", aside.event, aside.value, aside.noun, aside)
    if match := _ANSWER.fullmatch(step):
        return Said("answer", value=int(match[1]))
    if match := _RESTATEMENT.fullmatch(step):
        return Said("restatement", value=int(match[1]), noun=match[2])
    if match := _CIRCULAR.fullmatch(step):
        return Said("circular", value=int(match[1]), noun=match[2])
    if match := _PLANNING.fullmatch(step):
        return Said("planning", event=int(match[1]))
    return None


def begin(problem: Problem) -> State:
    """The state before the first step."""
    return State(0, problem.start)


def assess(problem: Problem, state: State, step: str) -> Verdict | None:
    """The exact labels of a step after ``state``, or ``None`` for text outside the grammar."""
    said = parse(step)
    if said is None:
        return None
    if said.body is not None:
        return _assess_body(problem, state, said.body)
    if said.kind == "answer":
        faults = ["early"] * (state.done < len(problem.events)) + ["answer"] * (said.value != state.value)
        return _verdict(faults, replace(state, value=said.value or 0, ended=True))
    faults = [said.kind]
    if said.event is not None:
        faults += ["event"] * (said.event != state.done + 1 or said.event > len(problem.events))
    faults += ["carried"] * (said.value not in (None, state.value))
    faults += ["unit"] * (said.noun not in (None, problem.noun))
    return _verdict(faults, state)


def _verdict(faults: list[str], state: State) -> Verdict:
    return Verdict(
        math=int(not any(f in MATH_FAULTS for f in faults)),
        consistency=int(not any(f in CONSISTENCY_FAULTS for f in faults)),
        optimality=int(not any(f in SUBOPTIMAL for f in faults)),
        faults=tuple(faults),
        state=state,
    )


def _assess_body(problem: Problem, state: State, body: Claim | Aside) -> Verdict:
    """Labels of a step about a numbered event."""
    faults = _claim_faults(body) if isinstance(body, Claim) else []
    faults += ["unit"] * (body.noun != problem.noun)
    if body in state.claims:
        return _verdict([*faults, "repetition"], state)
    if body.event <= state.done:
        faults.append("contradiction")
    if body.event > len(problem.events):
        faults.append("event")
    else:
        faults += ["skipped"] * (body.event > state.done + 1)
        faults += _event_faults(problem, body)
        faults += ["carried"] * ((body.left if isinstance(body, Claim) else body.value) != state.value)
    value = body.result if isinstance(body, Claim) else body.value
    after = replace(state, done=max(state.done, body.event), value=value, claims=(*state.claims, body))
    return _verdict(faults, after)


def _claim_faults(claim: Claim) -> list[str]:
    """What is wrong with a claim on its own."""
    faults = []
    if claim.sign != SIGN[claim.verb]:
        faults.append("misreading" if claim.verb in TRICKY else "operation")
    if claim.right != (2 if claim.object == "them" else int(claim.object)):
        faults.append("operand")
    if compute(claim.left, claim.sign, claim.right) != claim.result:
        faults.append("arithmetic")
    return faults


def _event_faults(problem: Problem, body: Claim | Aside) -> list[str]:
    """Where a step departs from the event that it names."""
    event = problem.events[body.event - 1]
    mine = event.actor == problem.hero
    if isinstance(body, Aside):
        return ["person"] if mine else ["name"] * (event.actor != body.name)
    faults = ["person"] * (not mine)
    faults += ["verb"] * (event.verb != body.verb)
    faults += ["amount"] * (event.verb == body.verb and event.object != body.object)
    return faults


def assess_all(problem: Problem, steps: list[str]) -> list[Verdict | None]:
    """Verdicts of a whole solution; from the first step outside the grammar on they are ``None``."""
    verdicts: list[Verdict | None] = []
    state: State | None = begin(problem)
    for step in steps:
        verdict = assess(problem, state, step) if state is not None else None
        verdicts.append(verdict)
        state = verdict.state if verdict else None
    return verdicts
