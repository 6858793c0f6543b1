"""The grammar of solution steps, and the oracle that labels any step of it exactly.

The labels are those of the judge prompt's criteria A, B and C (paper section 3.2): mathematics (is the step valid in
itself), consistency (with the story and the steps before it) and optimality (does it help). A step is judged against
the value that the solution carries, so a step that continues from an earlier incorrect value is correct.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pathfinder.world.story import NAMES, NOUNS, SIGN, TRICKY, Problem, compute

LINKS = (", so ", ", which makes ", ", hence ", ", so clearly ")
"""Wordings between a claim and its equation: the first is the usual one, the last the confident one."""
MATH_FAULTS = ("arithmetic", "operation", "misreading", "operand")
CONSISTENCY_FAULTS = (
    "amount", "verb", "carried", "unit", "person", "name", "skipped", "event", "contradiction", "early", "answer",
)  # fmt: skip
ERRORS = MATH_FAULTS + CONSISTENCY_FAULTS
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
class Claim:
    """The content of a step about an event of the hero, without its link."""

    event: int
    verb: str
    object: str
    left: int
    sign: str
    right: int
    result: int
    noun: str

    def text(self, link: str = LINKS[0]) -> str:
        """The wording of the step."""
        equation = f"{self.left} {self.sign} {self.right} = {self.result}"
        return f"{self.event}) {self.verb} {self.object}{link}{equation} {self.noun}."


@dataclass(frozen=True, slots=True)
class Aside:
    """The content of a step about another person's event."""

    event: int
    name: str
    value: int
    noun: str

    def text(self) -> str:
        """The wording of the step."""
        return f"{self.event}) is about {self.name}, so still {self.value} {self.noun}."


@dataclass(frozen=True, slots=True)
class ParsedStep:
    """The content of a step: its kind, and the event, the value before it, the noun and the claim if it names them."""

    kind: str
    event: int | None = None
    value: int | None = None
    noun: str | None = None
    body: Claim | Aside | None = None


@dataclass(frozen=True, slots=True)
class State:
    """The progress of a solution by its own words: events handled, value last stated, claims made."""

    done: int
    value: int
    claims: tuple[Claim | Aside, ...] = ()
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The truth about one step: 0 or 1 for the three criteria, the names of its faults, and the state after it."""

    math: int
    consistency: int
    optimality: int
    faults: tuple[str, ...]
    state: State

    @property
    def labels(self) -> tuple[int, int, int]:
        """The three criteria in the order of the prompts."""
        return self.math, self.consistency, self.optimality

    @property
    def is_correct(self) -> bool:
        """Whether the step has neither a mathematical nor a consistency error."""
        return bool(self.math and self.consistency)

    @property
    def rating(self) -> int:
        """The rating of a careful human on PRM800K's scale: 1 good, 0 not helpful, -1 incorrect."""
        return self.optimality if self.is_correct else -1


def parse(step: str) -> ParsedStep | None:
    """Read a step of the grammar; ``None`` for any other text."""
    if match := _CLAIM.fullmatch(step):
        event, verb, object_, left, sign, right, result, noun = match.groups()
        claim = Claim(int(event), verb, object_, int(left), sign, int(right), int(result), noun)
        return ParsedStep("claim", claim.event, claim.left, noun, claim)
    if match := _ASIDE.fullmatch(step):
        aside = Aside(int(match[1]), match[2], int(match[3]), match[4])
        return ParsedStep("aside", aside.event, aside.value, aside.noun, aside)
    if match := _ANSWER.fullmatch(step):
        return ParsedStep("answer", value=int(match[1]))
    if match := _RESTATEMENT.fullmatch(step):
        return ParsedStep("restatement", value=int(match[1]), noun=match[2])
    if match := _CIRCULAR.fullmatch(step):
        return ParsedStep("circular", value=int(match[1]), noun=match[2])
    if match := _PLANNING.fullmatch(step):
        return ParsedStep("planning", event=int(match[1]))
    return None


def answer_text(value: int) -> str:
    """The wording of the last step."""
    return f"The answer is \\boxed{{{value}}}."


def begin(problem: Problem) -> State:
    """The state before the first step."""
    return State(0, problem.start)


def assess(problem: Problem, state: State, step: str) -> Verdict | None:
    """The exact labels of a step after ``state``, or ``None`` for text outside the grammar."""
    parsed = parse(step)
    if parsed is None:
        return None
    if parsed.body is not None:
        return _assess_body(problem, state, parsed, parsed.body)
    if parsed.kind == "answer":
        faults = ["early"] * (state.done < len(problem.events)) + ["answer"] * (parsed.value != state.value)
        return _verdict(faults, replace(state, value=parsed.value or 0, ended=True))
    faults = [parsed.kind]
    if parsed.event is not None:
        faults += ["event"] * (parsed.event != state.done + 1 or parsed.event > len(problem.events))
    faults += ["carried"] * (parsed.value not in (None, state.value))
    faults += ["unit"] * (parsed.noun not in (None, problem.noun))
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


def is_on_track(problem: Problem, before: State, after: State) -> bool:
    """Whether a step keeps the true answer within reach, as Monte-Carlo labels estimate."""
    early = after.ended and before.done < len(problem.events)
    return after.value == problem.values[after.done] and not early


def _verdict(faults: list[str], state: State) -> Verdict:
    return Verdict(
        math=int(not any(fault in MATH_FAULTS for fault in faults)),
        consistency=int(not any(fault in CONSISTENCY_FAULTS for fault in faults)),
        optimality=int(not any(fault in SUBOPTIMAL for fault in faults)),
        faults=tuple(faults),
        state=state,
    )


def _assess_body(problem: Problem, state: State, parsed: ParsedStep, body: Claim | Aside) -> Verdict:
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
        faults += ["carried"] * (parsed.value != state.value)
    value = body.result if isinstance(body, Claim) else body.value
    after = replace(state, done=max(state.done, body.event), value=value, claims=(*state.claims, body))
    return _verdict(faults, after)


def _claim_faults(claim: Claim) -> list[str]:
    """Faults of a claim that show without the story."""
    faults = []
    if claim.sign != SIGN[claim.verb]:
        faults.append("misreading" if claim.verb in TRICKY else "operation")
    if claim.right != (2 if claim.object == "them" else int(claim.object)):
        faults.append("operand")
    if compute(claim.left, claim.sign, claim.right) != claim.result:
        faults.append("arithmetic")
    return faults


def _event_faults(problem: Problem, body: Claim | Aside) -> list[str]:
    """Differences between a step and the event that it names."""
    event = problem.events[body.event - 1]
    mine = event.actor == problem.hero
    if isinstance(body, Aside):
        return ["person"] if mine else ["name"] * (event.actor != body.name)
    faults = ["person"] * (not mine)
    faults += ["verb"] * (event.verb != body.verb)
    faults += ["amount"] * (event.verb == body.verb and event.object != body.object)
    return faults
