"""What the tiny models read while they are pretrained: stories, verification, drills and the judge's reasoning.

A lesson is a trunk and branches: a branch sees the trunk up to where it is attached, and itself. Every verdict about
a step is one branch, so one story with its solution carries a dozen of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from transformers import PreTrainedTokenizerFast

from pathfinder.core import prompts
from pathfinder.world import tiny
from pathfinder.world.steps import (
    Habits,
    Written,
    answer_text,
    aside_text,
    claim_text,
    fault_step,
    link_of,
    safe_step,
    write_solution,
)
from pathfinder.world.story import (
    CONSISTENCY_FAULTS,
    LEVELS,
    MATH_FAULTS,
    NAMES,
    NOUNS,
    PLAIN,
    SCALE,
    SIGN,
    SUBOPTIMAL,
    TRICKY,
    Aside,
    Claim,
    Level,
    Problem,
    Scale,
    State,
    Verdict,
    assess,
    compute,
    parse,
    sample_problem,
)

POLICY_HABITS = Habits(misread=0.55, slip=0.06, idle=0.04)
"""The human-like solver that the policy learns from: half of the tricky events are misread."""
PREFIX_HABITS = Habits(misread=0.15, slip=0.06, idle=0.08)
"""Solutions whose steps are to be verified."""
FAULTS = (*MATH_FAULTS, *CONSISTENCY_FAULTS)
LEVEL_SHARES = {"gsm8k": 0.2, "math": 0.3, "olympiadbench": 0.3, "omnimath": 0.2}


@dataclass(frozen=True, slots=True)
class Piece:
    """Token ids, the weight of the loss on each, and what each position must predict (its own id if not stated)."""

    ids: tuple[int, ...]
    weights: tuple[float, ...]
    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lesson:
    """A trunk and branches ``(attached after this many trunk tokens, piece)``."""

    trunk: Piece
    branches: tuple[tuple[int, Piece], ...] = ()

    @property
    def length(self) -> int:
        """Tokens of trunk and branches together."""
        return len(self.trunk.ids) + sum(len(piece.ids) for _, piece in self.branches)


class Scribe:
    """Builds pieces from text; encodings of repeated texts are remembered.

    Texts are encoded part by part; parts meet at blank lines and added tokens, where the tokenizer cuts anyway.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        core = tokenizer.backend_tokenizer
        self.encode: Callable[[str], tuple[int, ...]] = lru_cache(maxsize=50_000)(
            lambda text: tuple(core.encode(text, add_special_tokens=False).ids)
        )
        self.mask = tiny.token_id(tokenizer, tiny.END_OF_TEXT)

    def piece(self, *parts: tuple[str, float]) -> Piece:
        """Parts ``(text, loss weight)`` one after another."""
        ids: list[int] = []
        weights: list[float] = []
        for text, weight in parts:
            encoded = self.encode(text)
            ids += encoded
            weights += [weight] * len(encoded)
        return Piece(tuple(ids), tuple(weights), tuple(ids))

    def asked(self, words: Sequence[tuple[str, bool | None]], weight: float = 0.3) -> Piece:
        """Words one after another; the last token of each is to answer whether it holds, ``None`` asks nothing."""
        yes, no = self.encode(tiny.YES)[0], self.encode(tiny.NO)[0]
        ids: list[int] = []
        targets: list[int] = []
        weights: list[float] = []
        for text, holds in words:
            encoded = self.encode(text)
            ids += encoded
            targets += [yes if holds else no] * len(encoded)
            weights += [0.0] * (len(encoded) - 1) + [0.0 if holds is None else weight]
        # A target stands one place after the position that predicts it.
        return Piece(tuple(ids), (0.0, *weights[:-1]), (ids[0], *targets[:-1]))

    def verdict(self, step: str, verdict: Verdict, told: bool) -> Piece:
        """A step under "Current Step: " with its three verdicts; unless ``told``, each slot hides its answer.

        Every word of the step is a question too: is it the right one here? Without that, tiny models spend their
        whole budget on finding out which of a dozen words a verdict was about.
        """
        yes, no = self.encode(tiny.YES)[0], self.encode(tiny.NO)[0]
        asked = self.asked([("Current Step: ", None), *words_of(step, verdict)])
        ids, targets, weights = list(asked.ids), list(asked.targets), list(asked.weights)
        labels = (verdict.math, verdict.consistency, verdict.optimality)
        for caption, label in zip(tiny.CHECK_CAPTIONS, labels, strict=True):
            answer = yes if label else no
            ids += [*self.encode(caption), answer if told else self.mask]
            targets += [*self.encode(caption), answer]
            weights += [0.0, 1.0]
        return Piece(tuple(ids), tuple(weights), tuple(targets))


def words_of(step: str, verdict: Verdict) -> list[tuple[str, bool | None]]:
    """A step cut into words, each with whether it is the right one there (``None`` where nothing is asked)."""
    said = parse(step)
    faults = set(verdict.faults)
    if said is None:
        return [(step, None)]
    in_order = not faults & {"skipped", "contradiction", "event", "repetition"}
    body = said.body
    if isinstance(body, Claim):
        link = step.split(f"{body.event}) {body.verb} {body.object}", 1)[1].split(f" {body.left} {body.sign} ", 1)[0]
        return [
            (f"{body.event})", in_order),
            (f" {body.verb}", not faults & {"verb", "person"}),
            (f" {body.object}", "amount" not in faults),
            (link, None),
            (f" {body.left}", "carried" not in faults),
            (f" {body.sign}", not faults & {"operation", "misreading"}),
            (f" {body.right}", "operand" not in faults),
            (" =", None),
            (f" {body.result}", "arithmetic" not in faults),
            (f" {body.noun}", "unit" not in faults),
            (".", None),
        ]
    if isinstance(body, Aside):
        return [
            (f"{body.event})", in_order),
            (" is about", "person" not in faults),
            (f" {body.name}", not faults & {"person", "name"}),
            (", so still", None),
            (f" {body.value}", "carried" not in faults),
            (f" {body.noun}", "unit" not in faults),
            (".", None),
        ]
    if said.kind == "answer":
        head = " answer is \\boxed{"
        return [("The", "early" not in faults), (head, None), (str(said.value), "answer" not in faults), ("}.", None)]
    return [(step, None)]


def draw_problem(rng: random.Random, keep: Callable[[Problem], bool], levels: Mapping[str, Level] = LEVELS) -> Problem:
    """A story of a level drawn by ``LEVEL_SHARES`` for which ``keep`` holds."""
    level = rng.choices(list(LEVEL_SHARES), list(LEVEL_SHARES.values()))[0]
    while True:
        problem = sample_problem(rng, levels[level])
        if keep(problem):
            return problem


def candidate(rng: random.Random, problem: Problem, written: Written, sound: float = 0.45) -> str:
    """A step to verify after ``written.before``: sound with that probability, else with a fault drawn evenly."""
    link = link_of(rng, 0.2)
    draw = rng.random()
    if draw < sound:
        return safe_step(problem, written.before, link)
    kinds = SUBOPTIMAL if draw > 0.93 else FAULTS
    for _ in range(6):
        text = fault_step(problem, written.before, rng.choice(kinds), rng, link)
        if text is not None:
            return text
    return written.text


def scrambled(rng: random.Random, problem: Problem, state: State, by_words: bool = False) -> str | None:
    """The next step with each of its words wrong or right by chance: dense questions for ``words_of``.

    ``by_words`` leans to verbs, signs and names, otherwise to numbers.
    """
    of_number, of_result, of_sign, of_verb, of_name = (
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
    left = other(state.value) if wrong(of_number) else state.value
    if event.actor != problem.hero and not wrong(0.3):
        return aside_text(Aside(number, rng.choice(NAMES) if wrong(of_name) else event.actor, left, noun))
    verb = rng.choice(PLAIN + TRICKY) if wrong(of_verb) else event.verb
    # "amount" is only a fault of its own beside the right verb, so only there the object is changed.
    amounts = problem.scale.amounts
    object_ = str(rng.randint(1, amounts)) if verb == event.verb and wrong(0.25) else event.object
    sign = rng.choice("+-") if wrong(of_sign) else SIGN[verb]
    right = rng.randint(1, amounts) if wrong(of_number) else 2 if object_ == "them" else int(object_)
    result = compute(left, sign, right)
    result = other(result) if wrong(of_result) else result
    if not 0 <= result <= problem.scale.written:
        return None
    return claim_text(Claim(number, verb, object_, left, sign, right, result, noun), link_of(rng, 0.2))


def policy_lesson(scribe: Scribe, rng: random.Random, problem: Problem) -> Lesson:
    """A story under the policy's prompt and a human-like solution."""
    steps = [w.text for w in write_solution(problem, rng, POLICY_HABITS)]
    parts = [(prompts.policy_prompt(problem.text, []), 0.0)]
    for step in steps[:-1]:
        parts += [(step, 0.5), (prompts.STEP_SEPARATOR, 0.5)]
    parts += [(steps[-1], 0.5), (prompts.END_OF_TURN, 0.5)]
    return Lesson(scribe.piece(*parts))


def check_lesson(
    scribe: Scribe,
    rng: random.Random,
    problem: Problem,
    candidates: int = 2,
    scramble: float = 0.0,
    by_words: bool = False,
) -> Lesson:
    """A story, a solution, and for each place several steps with verdicts; ``scramble`` is the share scrambled."""
    solution = write_solution(problem, rng, PREFIX_HABITS)
    user = prompts.user_turn(problem.text, tiny.CHECK_SYSTEM)
    head = f"{tiny.START_OF_TURN}user\n{user}{tiny.END_OF_TURN}\n{tiny.START_OF_TURN}assistant\n"
    parts = list[tuple[str, float]]()
    length = len(scribe.encode(head))
    branches = []
    for written in solution:
        texts = [written.text] if rng.random() < (0.1 if scramble else 0.3) else []
        while len(texts) < candidates:
            mixed = scrambled(rng, problem, written.before, by_words) if scramble and rng.random() < scramble else None
            texts.append(mixed if mixed is not None else candidate(rng, problem, written))
        for text in texts:
            verdict = assess(problem, written.before, text)
            if verdict is not None:
                branches.append((length, scribe.verdict(text, verdict, told=rng.random() < 0.3)))
        parts += [(written.text, 0.2 * written.verdict.sound), (prompts.STEP_SEPARATOR, 0.0)]
        length += len(scribe.encode(written.text)) + 1
    opening = scribe.asked(_whose(problem, head)) if scramble else scribe.piece((head, 0.0))
    return Lesson(joined(opening, scribe.piece(*parts[:-1])), tuple(branches))


def _whose(problem: Problem, head: str) -> list[tuple[str, bool | None]]:
    """The opening of a check lesson, asked at each event's actor whether that is who the question is about."""
    words: list[tuple[str, bool | None]] = []
    rest = head
    for number, event in enumerate(problem.events, start=1):
        before, found, rest = rest.partition(f"\n{number}) {event.actor}")
        words += [
            (before + found.removesuffix(f" {event.actor}"), None),
            (f" {event.actor}", event.actor == problem.hero),
        ]
    return [*words, (rest, None)]


def joined(first: Piece, second: Piece) -> Piece:
    """One piece after another."""
    return Piece(first.ids + second.ids, first.weights + second.weights, first.targets + second.targets)


def recital_drill(scribe: Scribe, rng: random.Random, problem: Problem) -> Lesson:
    """The story, then its events again in shuffled order: teaches to look an event up by its number."""
    lines = problem.text.split("\n")[1:-1]
    shuffled = rng.sample(lines, len(lines))
    return Lesson(scribe.piece((problem.text + "\n\n", 0.0), *((f"{line}\n", 0.4) for line in shuffled)))


def arithmetic_drill(scribe: Scribe, rng: random.Random, scale: Scale = SCALE) -> Lesson:
    """Equations one a line, each followed by whether it is true; false ones are near misses."""
    parts: list[tuple[str, float]] = []
    for _ in range(12):
        sign, right = rng.choice("+-"), rng.randint(1, scale.amounts)
        low, high = (0, scale.written - scale.amounts) if sign == "+" else (right, scale.written)
        left = rng.randint(low, high)
        true = compute(left, sign, right)
        said = true if rng.random() < 0.5 else max(0, true + rng.choice((-3, -2, -1, 1, 2, 3)))
        parts += [(f" {left} {sign} {right} =", 0.0), (f" {said}", 0.5 * (said == true)), (tiny.CHECK_CAPTIONS[0], 0.0)]
        parts += [(tiny.YES if said == true else tiny.NO, 1.0), ("\n", 0.0)]
    return Lesson(scribe.piece(*parts))


def equality_drill(scribe: Scribe, rng: random.Random, scale: Scale = SCALE) -> Lesson:
    """Pairs of numbers one a line, each followed by whether they are the same."""
    parts: list[tuple[str, float]] = []
    for _ in range(16):
        first = rng.randint(0, scale.written)
        second = first if rng.random() < 0.5 else max(0, first + rng.choice((-3, -2, -1, 1, 2, 3)))
        parts += [(f" {first} {second}", 0.0), (tiny.CHECK_CAPTIONS[0], 0.0)]
        parts += [(tiny.YES if first == second else tiny.NO, 1.0), ("\n", 0.0)]
    return Lesson(scribe.piece(*parts))


def word_drill(scribe: Scribe, rng: random.Random) -> Lesson:
    """Verbs with signs, pairs of verbs and pairs of names one a line, each followed by whether they belong together."""
    parts: list[tuple[str, float]] = []
    for _ in range(16):
        kind, same = rng.randrange(3), rng.random() < 0.5
        if kind == 0:
            first, second = rng.choice(PLAIN + TRICKY), rng.choice("+-")
            same = SIGN[first] == second
        else:
            choices = list(SIGN) if kind == 1 else list(NAMES)
            first = rng.choice(choices)
            second = first if same else rng.choice([other for other in choices if other != first])
        parts += [(f" {first} {second}", 0.0), (tiny.CHECK_CAPTIONS[0], 0.0)]
        parts += [(tiny.YES if same else tiny.NO, 1.0), ("\n", 0.0)]
    return Lesson(scribe.piece(*parts))


def base_lesson(
    scribe: Scribe,
    rng: random.Random,
    keep: Callable[[Problem], bool],
    scramble: float = 0.0,
    by_words: bool = False,
    levels: Mapping[str, Level] = LEVELS,
) -> Lesson:
    """One lesson of the base model's mixture; with ``scramble`` the mixture leans to verification.

    ``by_words`` turns the scrambling, and a part of the lessons, to verbs, signs and names.
    """
    scale = next(iter(levels.values())).scale
    if by_words and rng.random() < 0.15:
        return word_drill(scribe, rng)
    if scramble and rng.random() < 0.1:
        return equality_drill(scribe, rng, scale) if rng.random() < 0.4 else arithmetic_drill(scribe, rng, scale)
    draw = rng.random()
    if draw < 0.06:
        return arithmetic_drill(scribe, rng, scale)
    problem = draw_problem(rng, keep, levels)
    if draw < 0.12:
        return recital_drill(scribe, rng, problem)
    if draw < 0.36:
        return policy_lesson(scribe, rng, problem)
    return check_lesson(scribe, rng, problem, scramble=scramble, by_words=by_words)
