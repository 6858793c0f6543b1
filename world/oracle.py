"""The grammar of solution steps, and the oracle that labels any step of it exactly.

The labels are the judge prompt's criteria A, B and C (paper section 3.2): mathematics (is the step valid in itself),
consistency (does it agree with the story and the steps before it) and optimality (does it help). A step that continues
from an earlier incorrect value is correct.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from string import Formatter
from typing import Any, ClassVar

from ground.io import DataError
from world.story import SIGN, TRICKY, WIDE, Problem, compute, read_story

LINKS = (", so ", ", which makes ", ", hence ", ", so clearly ")
"""Wordings between a claim and its equation: the first is usual, the last is confident."""
BARE = ""
"""The link of a claim that consists of only its equation."""
MATH_FAULTS = ("arithmetic", "operation", "misreading", "operand")
CONSISTENCY_FAULTS = (
    "amount", "verb", "carried", "unit", "person", "name", "skipped", "event", "contradiction", "early", "answer",
)  # fmt: skip
ERRORS = MATH_FAULTS + CONSISTENCY_FAULTS
SUBOPTIMAL = ("repetition", "restatement", "circular", "planning")
INSTRUCTED = {"unchecked": -1, "dead_end": -1, "circling": -1, "planning": 1}
"""The ratings that PRM800K's instructions give four kinds of correct steps (docs/readings.md)."""
CRITERIA = ("math", "consistency", "optimality")
"""The criteria whose truth the world knows, in the order of the judge's prompt."""

_FORMS = {
    "claim": "{event}) {verb} {object}{link}{value} {sign} {right} = {result} {noun}.",
    "sum": "{value} {sign} {right} = {result}.",
    "aside": "{event}) is about {name}, so still {value} {noun}.",
    "answer": "The answer is \\boxed{{{value}}}.",
    "restatement": "So far that is {value} {noun}.",
    "circular": "If that is {value} {noun}, then {value} {noun} it is.",
    "planning": "Next we read {event}).",
}
_NUMBER = r"0|[1-9]\d{0,2}"
_NUMBERS = {"event": "[1-9]", "value": _NUMBER, "right": _NUMBER, "result": _NUMBER}
_WORDS = {"verb": "|".join(SIGN), "object": f"them|{_NUMBER}", "link": "|".join(LINKS), "sign": "[-+*]"}
_WORDS |= {"noun": "|".join(WIDE.nouns), "name": "|".join(WIDE.names)}


def _pattern(form: str) -> re.Pattern[str]:
    """The pattern of a form, with a group per field; a field that occurs twice must have the same text twice."""
    pattern = ""
    for literal, name, *_ in Formatter().parse(form):
        group = f"(?P<{name}>"
        pattern += re.escape(literal)
        if name:
            pattern += f"(?P={name})" if group in pattern else f"{group}{(_NUMBERS | _WORDS)[name]})"
    return re.compile(pattern)


_PATTERNS = {kind: _pattern(form) for kind, form in _FORMS.items()}


@dataclass(frozen=True, slots=True)
class Claim:
    """The content of a step about an event of the hero, without its link."""

    event: int
    verb: str
    object: str
    value: int
    sign: str
    right: int
    result: int
    noun: str


@dataclass(frozen=True, slots=True)
class Aside:
    """The content of a step about another person's event."""

    event: int
    name: str
    value: int
    noun: str


@dataclass(frozen=True, slots=True)
class Sum:
    """The content of a bare line, which is about the hero's next event or the next term of a sum."""

    event: ClassVar[None] = None
    noun: ClassVar[None] = None
    value: int
    sign: str
    right: int
    result: int


@dataclass(frozen=True, slots=True)
class Remark:
    """The content of an answer or of a step that does not help; fields that its kind does not have are ``None``."""

    kind: str
    event: int | None = None
    value: int | None = None
    noun: str | None = None


_KINDS: dict[str, type[Claim | Sum | Aside]] = {"claim": Claim, "sum": Sum, "aside": Aside}
Step = Claim | Sum | Aside | Remark
"""``value`` is the value that the step takes over from the steps before it."""


@dataclass(frozen=True, slots=True)
class State:
    """The progress of a solution, by its text: events handled, value last stated, claims made."""

    done: int
    value: int
    claims: tuple[Claim | Sum | Aside, ...] = ()
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """A step and the truth about it: 0 or 1 for each of ``CRITERIA``, its faults, and the states around it."""

    text: str
    step: Step
    before: State
    after: State
    labels: tuple[int, int, int]
    faults: tuple[str, ...]

    @property
    def scores(self) -> dict[str, int]:
        """``labels`` by name."""
        return dict(zip(CRITERIA, self.labels, strict=True))

    @property
    def is_correct(self) -> bool:
        """True if the step has neither a mathematical nor a consistency error."""
        return self.labels[:2] == (1, 1)

    @property
    def rating(self) -> int:
        """The rating of a careful human on PRM800K's scale: 1 good, 0 not helpful, -1 incorrect."""
        return self.scores["optimality"] if self.is_correct else -1

    @property
    def instructed(self) -> str | None:
        """The kind in ``INSTRUCTED`` of a correct step, if it has one.

        A claim in the confident wording shows no reason, so it counts as ``unchecked``. A step about another person
        does not bring the answer closer, so it counts as a ``dead_end``.
        """
        if self.rating == 1:
            is_unchecked = isinstance(self.step, Claim) and LINKS[-1] in self.text
            return "dead_end" if isinstance(self.step, Aside) else "unchecked" if is_unchecked else None
        found = {"repetition": "circling", "circular": "circling", "planning": "planning"}
        return found.get(self.faults[0]) if self.is_correct else None


def parse(text: str) -> Step | None:
    """Read a step of the grammar; ``None`` for any other text."""
    for kind, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(text):
            found: dict[str, Any] = match.groupdict()
            found |= {name: int(found[name]) for name in _NUMBERS.keys() & found}
            found.pop("link", None)
            return _KINDS[kind](**found) if kind in _KINDS else Remark(kind, **found)
    return None


def text_of(step: Step, link: str = LINKS[0]) -> str:
    """The wording of a step, a claim with ``link``."""
    kind = step.kind if isinstance(step, Remark) else type(step).__name__.lower()
    kind = "sum" if kind == "claim" and link == BARE else kind
    return _FORMS[kind].format(link=link, **asdict(step))


def answer_text(value: int) -> str:
    """The wording of the last step."""
    return text_of(Remark("answer", value=value))


def begin(problem: Problem) -> State:
    """The state before the first step."""
    return State(0, problem.start)


def next_own(problem: Problem, state: State) -> int:
    """The place (from 0) of the hero's next event, or the number of events if no event is left."""
    places = range(state.done, len(problem.events))
    return next((place for place in places if problem.events[place].actor == problem.hero), len(problem.events))


def is_early(problem: Problem, state: State) -> bool:
    """True if an answer after ``state`` omits an event; after a bare line, only the hero's events need a step."""
    after_bare = bool(state.claims) and isinstance(state.claims[-1], Sum)
    return (next_own(problem, state) if after_bare else state.done) < len(problem.events)


def assess(problem: Problem, state: State, text: str) -> Verdict | None:
    """The exact labels of a step after ``state``, or ``None`` for text outside the grammar."""
    step = parse(text)
    return None if step is None else assess_step(problem, state, step, text)


def assess_step(problem: Problem, state: State, step: Step, text: str) -> Verdict:
    """``assess`` for a parsed step."""
    after = state
    if not isinstance(step, Remark):
        faults = _event_step_faults(problem, state, step)
        if "repetition" not in faults:
            value = step.value if isinstance(step, Aside) else step.result
            done = step.event or (next_own(problem, state) + 1 if "event" not in faults else 0)
            after = State(max(state.done, done), value, (*state.claims, step), state.ended)
    elif step.kind == "answer":
        faults = ["early"] * is_early(problem, state) + ["answer"] * (step.value != state.value)
        after = replace(state, value=step.value or 0, ended=True)
    else:
        faults = [step.kind]
        if step.event is not None:
            faults += ["event"] * (step.event != state.done + 1 or step.event > len(problem.events) or problem.is_sum)
        faults += ["carried"] * (step.value not in (None, state.value))
        faults += ["unit"] * (step.noun not in (None, problem.noun))
    math, consistency, optimality = (int({*faults}.isdisjoint(kind)) for kind in Truth.kinds.values())
    return Verdict(text, step, state, after, (math, consistency, optimality), tuple(faults))


def assess_all(problem: Problem, steps: Sequence[str]) -> list[Verdict | None]:
    """Verdicts of a whole solution; from the first step outside the grammar on they are ``None``."""
    verdicts: list[Verdict | None] = []
    state: State | None = begin(problem)
    for step in steps:
        verdict = assess(problem, state, step) if state is not None else None
        verdicts.append(verdict)
        state = verdict.after if verdict else None
    return verdicts


class Truth:
    """The faults that the report compares with the predicted labels."""

    kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "mathematics": MATH_FAULTS,
        "consistency": CONSISTENCY_FAULTS,
        "not optimal": SUBOPTIMAL,
    }
    """The names of the faults by kind, in the order of ``CRITERIA``."""

    def faults(self, problem: str, steps: Sequence[str]) -> list[tuple[str, ...] | None] | None:
        """The faults of each step, ``None`` from the first step outside the grammar; ``None`` if there is no story."""
        return _faults(problem, tuple(steps))


@cache
def _faults(problem: str, steps: tuple[str, ...]) -> list[tuple[str, ...] | None] | None:
    try:
        story = read_story(problem)
    except DataError:
        return None
    return [verdict.faults if verdict else None for verdict in assess_all(story, steps)]


def assess_to_error(problem: Problem, steps: Sequence[str]) -> list[Verdict | None]:
    """Verdicts of a solution, up to and including the first step that is incorrect or outside the grammar."""
    verdicts = assess_all(problem, steps)
    errors = (place for place, verdict in enumerate(verdicts, start=1) if verdict is None or not verdict.is_correct)
    return verdicts[: next(errors, None)]


def verb_of(problem: Problem, verdict: Verdict) -> str | None:
    """The verb that a claim names, or the verb of the event that a bare line is about."""
    if isinstance(verdict.step, Sum):
        has_event = {"event", "repetition"}.isdisjoint(verdict.faults)
        return problem.events[verdict.after.done - 1].verb if has_event else None
    return verdict.step.verb if isinstance(verdict.step, Claim) else None


def is_on_track(problem: Problem, verdict: Verdict) -> bool:
    """True if a step keeps the true answer within reach, as Monte-Carlo labels estimate."""
    early = verdict.after.ended and is_early(problem, verdict.before)
    return verdict.after.value == problem.values[verdict.after.done] and not early


def _sum_faults(problem: Problem, state: State, step: Sum) -> list[str]:
    faults = ["arithmetic"] * (compute(step.value, step.sign, step.right) != step.result)
    event = next(iter(problem.events[next_own(problem, state) :]), None)
    continues = event and (step.value, step.sign, step.right) == (state.value, event.sign, event.amount)
    if step in state.claims and not continues:
        return [*faults, "repetition"]
    if event is None:
        return [*faults, "event"]
    if step.sign != event.sign:
        faults.append("misreading" if event.verb in TRICKY else "operation")
    return faults + ["amount"] * (step.right != event.amount) + ["carried"] * (step.value != state.value)


def _event_step_faults(problem: Problem, state: State, step: Claim | Sum | Aside) -> list[str]:
    if isinstance(step, Sum):
        return _sum_faults(problem, state, step)
    faults = _claim_faults(step) if isinstance(step, Claim) else []
    faults += ["unit"] * (step.noun != problem.noun)
    if step in state.claims:
        return [*faults, "repetition"]
    faults += ["contradiction"] * (step.event <= state.done)
    if step.event > len(problem.events):
        return [*faults, "event"]
    faults += ["skipped"] * (step.event > state.done + 1)
    event = problem.events[step.event - 1]
    faults += ["person"] * ((event.actor == problem.hero) == isinstance(step, Aside))
    if isinstance(step, Claim):
        faults += ["verb"] * (event.verb != step.verb)
        faults += ["amount"] * (event.verb == step.verb and event.object != step.object)
    elif event.actor != problem.hero:
        faults += ["name"] * (event.actor != step.name)
    return faults + ["carried"] * (step.value != state.value)


def _claim_faults(claim: Claim) -> list[str]:
    """Faults of a claim that are visible without the story."""
    faults = []
    if claim.sign != SIGN[claim.verb]:
        faults.append("misreading" if claim.verb in TRICKY else "operation")
    faults += ["operand"] * (claim.right != (2 if claim.object == "them" else int(claim.object)))
    return faults + ["arithmetic"] * (compute(claim.value, claim.sign, claim.right) != claim.result)
