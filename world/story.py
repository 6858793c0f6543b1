"""Arithmetic stories with known ground truth.

A story is a start, numbered events and a question. Its solution handles the events in order, one step each::

    Tom has 5 apples.                    1) buys 7, so 5 + 7 = 12 apples.
    1) Tom buys 7.                       2) is about Ann, so still 12 apples.
    2) Ann sells 6.                      3) takes back 2, so 12 + 2 = 14 apples.
    3) Tom takes back 2.                 The answer is \\boxed{14}.
    How many apples does Tom have?

"takes back" and "gives back" are the planted misconception: solvers often apply the wrong sign.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ground.io import DataError
from pathfinder.core.records import problem_id

NAMES = ("Tom", "Ann", "Bob", "Eve", "Sam", "Mia", "Leo", "Zoe", "Max", "Ida")
NOUNS = ("apples", "pears", "coins", "books", "cards", "stamps", "shells", "beads", "pens", "plums")
TRICKY = ("takes back", "gives back")
DOUBLES = "doubles"
SIGN = {
    **dict.fromkeys(("buys", "finds", "gets", TRICKY[0]), "+"),
    **dict.fromkeys(("sells", "loses", "uses", TRICKY[1]), "-"),
    DOUBLES: "*",
}
PLAIN = tuple(verb for verb in SIGN if verb not in TRICKY and verb != DOUBLES)
VERBS = PLAIN + TRICKY

Split = Literal["train", "benchmark", "search", "held_out"]
"""``train`` feeds pretraining and the training corpora; ``held_out`` is used only to measure the models."""
_SPLITS: dict[int, Split] = {0: "benchmark", 1: "search", 2: "held_out"}
_HEAD = re.compile(r"(\w+) has (\d+) (\w+)\.")
_EVENT = re.compile(rf"\d+\) (\w+) ({'|'.join(SIGN)}) (them|\d+)\.")


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers of a world.

    Starts and amounts are at most ``amounts``. Written numbers are at most ``written``, so tiny models see each number
    often. Numbers up to 99 are one token each, and an incorrect number is up to 9 too high.
    """

    amounts: int = 9
    written: int = 39


@dataclass(frozen=True, slots=True)
class Level:
    """The difficulty of a story; ``distractors``, ``tricky`` and ``doubles`` are probabilities per event."""

    name: str
    events: tuple[int, int]
    largest: int
    distractors: float
    tricky: float = 0.28
    doubles: float = 0.0
    scale: Scale = Scale()


def _by_name(*levels: Level) -> Mapping[str, Level]:
    return {level.name: level for level in levels}


_RICH = Scale(amounts=19, written=89)
LEVELS = _by_name(
    Level("gsm8k", (2, 3), 19, 0.15),
    Level("math", (3, 4), 19, 0.2, doubles=0.05),
    Level("olympiadbench", (4, 5), 24, 0.2, doubles=0.08),
    Level("omnimath", (5, 7), 29, 0.25, doubles=0.08),
)
"""The small world's levels, named after the ProcessBench subsets in their order of difficulty."""
WORLDS = {
    "small": LEVELS,
    "rich": _by_name(
        Level("gsm8k", (2, 4), 49, 0.2, tricky=0.33, doubles=0.05, scale=_RICH),
        Level("math", (4, 6), 59, 0.25, tricky=0.33, doubles=0.1, scale=_RICH),
        Level("olympiadbench", (5, 8), 69, 0.3, tricky=0.36, doubles=0.1, scale=_RICH),
        Level("omnimath", (7, 9), 79, 0.35, tricky=0.36, doubles=0.12, scale=_RICH),
    ),
}
"""Two sizes with the same grammar and oracle (docs/world.md compares them)."""


@dataclass(frozen=True, slots=True)
class Event:
    """One numbered line of a story; ``amount`` is 2 for doubling."""

    actor: str
    verb: str
    amount: int

    @property
    def object(self) -> str:
        """The word after the verb: the amount, or "them" for doubling."""
        return "them" if self.verb == DOUBLES else str(self.amount)


@dataclass(frozen=True, slots=True)
class Problem:
    """A story and its true values."""

    level: str
    hero: str
    noun: str
    start: int
    events: tuple[Event, ...]
    scale: Scale = Scale()

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
    """``left sign right`` for the signs ``+``, ``-`` and ``*``."""
    return left + right if sign == "+" else left - right if sign == "-" else left * right


def sample_problem(rng: random.Random, level: Level) -> Problem:
    """Draw a story of a level; every value is in ``0 … level.largest``."""
    while True:
        hero, *others = rng.sample(NAMES, 3)
        noun = rng.choice(NOUNS)
        start = value = rng.randint(2, level.scale.amounts)
        events: list[Event] = []
        for _ in range(rng.randint(*level.events)):
            if rng.random() < level.distractors:
                verb = rng.choice(VERBS)
                events.append(Event(rng.choice(others), verb, rng.randint(1, level.scale.amounts)))
            else:
                events.append(_hero_event(rng, level, hero, value))
                value = compute(value, SIGN[events[-1].verb], events[-1].amount)
        if any(event.actor == hero for event in events):
            return Problem(level.name, hero, noun, start, tuple(events), level.scale)


def _hero_event(rng: random.Random, level: Level, hero: str, value: int) -> Event:
    while True:
        draw = rng.random()
        if draw < level.tricky:
            verb = rng.choice(TRICKY)
        elif draw < level.tricky + level.doubles:
            verb = DOUBLES
        else:
            verb = rng.choice(PLAIN)
        amount = 2 if verb == DOUBLES else rng.randint(1, level.scale.amounts)
        # Both readings of a tricky event must give a valid value, or its misreading could not be written.
        signs = "+-" if verb in TRICKY else SIGN[verb]
        if all(0 <= compute(value, sign, amount) <= level.largest for sign in signs) and (verb != DOUBLES or value):
            return Event(hero, verb, amount)


def split_of(problem: Problem) -> Split:
    """The split of a story, from the digest of its text, so no story is in two splits."""
    return _SPLITS.get(int(problem_id(problem.text)[:8], 16) % 10, "train")


def sample_from(rng: random.Random, level: Level, split: Split) -> Problem:
    """Draw a story of a level and a split."""
    while True:
        problem = sample_problem(rng, level)
        if split_of(problem) == split:
            return problem


def read_story(text: str) -> Problem:
    """Parse the text of a story, without its level; raises ``DataError`` if it is not exactly a story."""
    head, *lines = text.split("\n")
    found, lines_read = _HEAD.fullmatch(head), filter(None, map(_EVENT.fullmatch, lines))
    if found:
        events = tuple(Event(m[1], m[2], 2 if m[3] == "them" else int(m[3])) for m in lines_read)
        story = Problem("", found[1], found[3], int(found[2]), events)
        if story.text == text:
            return story
    raise DataError(f"{text!r} is no story of this world; generate the corpora again")
