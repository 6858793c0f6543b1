"""Arithmetic stories with known ground truth.

A story is a start, numbered events and a question. Its solution handles the events in order, one step each::

    Tom has 5 apples.                    1) buys 7, so 5 + 7 = 12 apples.
    1) Tom buys 7.                       2) is about Ann, so still 12 apples.
    2) Ann sells 6.                      3) takes back 2, so 12 + 2 = 14 apples.
    3) Tom takes back 2.                 The answer is \\boxed{14}.
    How many apples does Tom have?

"takes back" and "gives back" are the planted misconception: solvers often apply the wrong sign.

The wide language also has plain sums, "What is 12 + 7 - 3?", and steps that are a bare line, "12 + 7 = 19.".
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ground.io import DataError
from pathfinder.core.records import problem_id

TRICKY = ("takes back", "gives back")
DOUBLES = "doubles"
_NAMES = ("Tom", "Ann", "Bob", "Eve", "Sam", "Mia", "Leo", "Zoe", "Max", "Ida")
_MORE_NAMES = (
    "Emma", "Noah", "Lily", "Jack", "Maria", "Peter", "Sara", "Paul", "Nina", "Omar",
    "Ali", "Mei", "Raj", "Ben", "Lucy", "Alice", "John", "Mary", "Anna", "David",
)  # fmt: skip
_NOUNS = ("apples", "pears", "coins", "books", "cards", "stamps", "shells", "beads", "pens", "plums")
_MORE_NOUNS = (
    "oranges", "cookies", "marbles", "candies", "eggs", "balls", "toys", "dollars", "pencils", "stickers",
    "flowers", "tickets", "cups", "bananas", "cakes", "keys", "bottles", "boxes", "stones", "cars",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Language:
    """The words and speech habits of a world; the tricky verbs and "doubles" are in every language.

    ``sums`` is the share of plain sums among the problems, and ``bare`` is the share of bare equations among the steps.
    With ``even_slips``, a solver's slip is drawn among the faults that its place allows, and faults that would
    otherwise be rare have more weight.
    ``vocabulary`` is the number of byte, number and word tokens, without the added tokens.
    """

    names: tuple[str, ...] = _NAMES
    nouns: tuple[str, ...] = _NOUNS
    adding: tuple[str, ...] = ("buys", "finds", "gets")
    taking: tuple[str, ...] = ("sells", "loses", "uses")
    sums: float = 0.0
    bare: float = 0.0
    even_slips: bool = False
    vocabulary: int = 1024

    @property
    def plain(self) -> tuple[str, ...]:
        """The verbs that are neither tricky nor "doubles"."""
        return self.adding + self.taking

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs with an amount."""
        return self.plain + TRICKY

    @property
    def signs(self) -> dict[str, str]:
        """The sign of each verb."""
        added, taken = (*self.adding, TRICKY[0]), (*self.taking, TRICKY[1])
        return dict.fromkeys(added, "+") | dict.fromkeys(taken, "-") | {DOUBLES: "*"}


NARROW = Language()
WIDE = Language(
    names=_NAMES + _MORE_NAMES,
    nouns=_NOUNS + _MORE_NOUNS,
    adding=(*NARROW.adding, "receives", "picks", "earns", "wins", "collects", "makes", "adds"),
    taking=(*NARROW.taking, "eats", "drops", "spends", "breaks", "throws", "gives away"),
    sums=0.12,
    bare=0.08,
    even_slips=True,
    vocabulary=1280,
)
"""The language with the words of all languages; stories and steps are parsed in it."""
SIGN = WIDE.signs

Split = Literal["train", "benchmark", "search", "held_out"]
"""``train`` feeds pretraining and the training corpora; ``held_out`` is used only to measure the models."""
_SPLITS: dict[int, Split] = {0: "benchmark", 1: "search", 2: "held_out"}
_HEAD = re.compile(r"(\w+) has (\d+) (\w+)\.")
_EVENT = re.compile(rf"\d+\) (\w+) ({'|'.join(SIGN)}) (them|\d+)\.")
_SUM = re.compile(r"What is (\d+)((?: [-+] \d+)+)\?")
_LONGEST_SUM = 4
LARGEST_NUMBER = 99
"""The largest number that is one token."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers of a world.

    Written results are at most ``written``, so tiny models see each number often.
    """

    starts: int = 9
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
    language: Language = NARROW


def _by_name(*levels: Level) -> Mapping[str, Level]:
    return {level.name: level for level in levels}


_RICH = Scale(starts=19, amounts=19, written=89)
_WIDE = Scale(starts=39, amounts=19, written=LARGEST_NUMBER)
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
    "wide": _by_name(
        Level("gsm8k", (1, 3), 39, 0.15, scale=_WIDE, language=WIDE),
        Level("math", (3, 4), 59, 0.2, doubles=0.05, scale=_WIDE, language=WIDE),
        Level("olympiadbench", (4, 5), 79, 0.2, doubles=0.08, scale=_WIDE, language=WIDE),
        Level("omnimath", (5, 7), 89, 0.25, doubles=0.08, scale=_WIDE, language=WIDE),
    ),
}
"""Worlds with the same grammar and oracle (docs/world.md compares them)."""


@dataclass(frozen=True, slots=True)
class Event:
    """One numbered line of a story, or a term of a sum, which has its sign as verb; ``amount`` is 2 for doubling."""

    actor: str
    verb: str
    amount: int

    @property
    def object(self) -> str:
        """The word after the verb: the amount, or "them" for doubling."""
        return "them" if self.verb == DOUBLES else str(self.amount)

    @property
    def sign(self) -> str:
        """The sign of the event's equation."""
        return SIGN.get(self.verb, self.verb)


@dataclass(frozen=True, slots=True)
class Problem:
    """A story and its true values; a plain sum has no hero, noun or actors."""

    level: str
    hero: str
    noun: str
    start: int
    events: tuple[Event, ...]
    scale: Scale = Scale()
    language: Language = NARROW

    @property
    def is_sum(self) -> bool:
        """True for a plain sum."""
        return not self.hero

    @property
    def text(self) -> str:
        """The story as the models read it."""
        if self.is_sum:
            return f"What is {self.start}{''.join(f' {e.verb} {e.amount}' for e in self.events)}?"
        lines = [f"{i}) {e.actor} {e.verb} {e.object}." for i, e in enumerate(self.events, start=1)]
        head, tail = f"{self.hero} has {self.start} {self.noun}.", f"How many {self.noun} does {self.hero} have?"
        return "\n".join([head, *lines, tail])

    @property
    def values(self) -> tuple[int, ...]:
        """True values after 0, 1, … events."""
        values = [self.start]
        for event in self.events:
            mine = event.actor == self.hero
            values.append(compute(values[-1], event.sign, event.amount) if mine else values[-1])
        return tuple(values)

    @property
    def answer(self) -> int:
        """The true answer."""
        return self.values[-1]


def compute(left: int, sign: str, right: int) -> int:
    """``left sign right`` for the signs ``+``, ``-`` and ``*``."""
    return left + right if sign == "+" else left - right if sign == "-" else left * right


def sample_problem(rng: random.Random, level: Level) -> Problem:
    """Draw a story or a sum of a level; every value is in ``0 … level.largest``."""
    language = level.language
    if language.sums and rng.random() < language.sums:
        return _sample_sum(rng, level)
    while True:
        hero, *others = rng.sample(language.names, 3)
        noun = rng.choice(language.nouns)
        start = value = rng.randint(2, level.scale.starts)
        events: list[Event] = []
        for _ in range(rng.randint(*level.events)):
            if rng.random() < level.distractors:
                verb = rng.choice(language.verbs)
                events.append(Event(rng.choice(others), verb, rng.randint(1, level.scale.amounts)))
            else:
                events.append(_hero_event(rng, level, hero, value))
                value = compute(value, events[-1].sign, events[-1].amount)
        if any(event.actor == hero for event in events):
            return Problem(level.name, hero, noun, start, tuple(events), level.scale, language)


def _sample_sum(rng: random.Random, level: Level) -> Problem:
    start, events = rng.randint(2, level.scale.starts), list[Event]()
    wanted, value = rng.randint(1, min(_LONGEST_SUM, level.events[1])), start
    while len(events) < wanted:
        term = Event("", rng.choice("+-"), rng.randint(1, level.scale.amounts))
        if 0 <= (result := compute(value, term.sign, term.amount)) <= level.largest:
            events.append(term)
            value = result
    return Problem(level.name, "", "", start, tuple(events), level.scale, level.language)


def _hero_event(rng: random.Random, level: Level, hero: str, value: int) -> Event:
    while True:
        draw = rng.random()
        if draw < level.tricky:
            verb = rng.choice(TRICKY)
        elif draw < level.tricky + level.doubles:
            verb = DOUBLES
        else:
            verb = rng.choice(level.language.plain)
        amount = 2 if verb == DOUBLES else rng.randint(1, level.scale.amounts)
        # Both readings of a tricky event must give a valid value; otherwise its misreading could not be written.
        signs = "+-" if verb in TRICKY else SIGN[verb]
        if all(0 <= compute(value, sign, amount) <= level.largest for sign in signs) and (verb != DOUBLES or value):
            return Event(hero, verb, amount)


def split_of(problem: Problem) -> Split:
    """The split of a story: the digest of its text decides, so no story is in two splits."""
    return _SPLITS.get(int(problem_id(problem.text)[:8], 16) % 10, "train")


def sample_from(rng: random.Random, level: Level, split: Split) -> Problem:
    """Draw a story of a level and a split."""
    while True:
        problem = sample_problem(rng, level)
        if split_of(problem) == split:
            return problem


def read_story(text: str) -> Problem:
    """Parse the text of a story or sum, without its level; raises ``DataError`` if it is not exactly one."""
    head, *lines = text.split("\n")
    story = None
    if found := _SUM.fullmatch(text):
        terms = re.findall(r"([-+]) (\d+)", found[2])
        story = Problem("", "", "", int(found[1]), tuple(Event("", sign, int(amount)) for sign, amount in terms))
    elif found := _HEAD.fullmatch(head):
        lines_read = filter(None, map(_EVENT.fullmatch, lines))
        events = tuple(Event(m[1], m[2], 2 if m[3] == "them" else int(m[3])) for m in lines_read)
        story = Problem("", found[1], found[3], int(found[2]), events)
    if story and story.text == text:
        return story
    raise DataError(f"{text!r} is no story of this world; generate the corpora again")
