"""Lessons for pretraining the base model: stories, verification of steps, and drills.

A branch of a lesson sees the trunk up to its attachment point and itself. Each verdict about a step is one branch, so
one story with its solution carries a dozen verdicts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from transformers import PreTrainedTokenizerFast

from pathfinder.core import prompts
from world import tiny
from world.oracle import Aside, Claim, Sum, Verdict
from world.steps import POLICY_HABITS, PREFIX_HABITS, draw_step_to_verify, write_solution
from world.story import LARGEST_NUMBER, SIGN, Language, Level, Problem, Scale, compute, sample_from

LEVEL_SHARES = {"gsm8k": 0.2, "math": 0.3, "olympiadbench": 0.3, "omnimath": 0.2}

Questions = list[tuple[str, bool | None]]
"""Texts, each with the answer to "is it right?"; ``None`` if there is no question."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Token ids, the loss weight of each, and the token to predict at each position (usually its own id)."""

    ids: tuple[int, ...]
    weights: tuple[float, ...]
    targets: tuple[int, ...]

    def __add__(self, other: Piece) -> Piece:
        return Piece(self.ids + other.ids, self.weights + other.weights, self.targets + other.targets)


@dataclass(frozen=True, slots=True)
class Lesson:
    """A trunk and branches ``(number of trunk tokens that the branch sees, piece)``."""

    trunk: Piece
    branches: tuple[tuple[int, Piece], ...] = ()

    @property
    def length(self) -> int:
        """Tokens of trunk and branches together."""
        return len(self.trunk.ids) + sum(len(piece.ids) for _, piece in self.branches)


class Encoder:
    """Encodes texts in parts, which end at blank lines and added tokens, because the tokenizer splits there anyway."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        core = tokenizer.backend_tokenizer
        self.encode: Callable[[str], tuple[int, ...]] = lru_cache(maxsize=50_000)(
            lambda text: tuple(core.encode(text, add_special_tokens=False).ids)
        )
        self.mask = tiny.token_id(tokenizer, tiny.END_OF_TEXT)
        self.yes, self.no = self.encode(tiny.YES)[0], self.encode(tiny.NO)[0]

    def piece(self, *parts: tuple[str, float]) -> Piece:
        """Concatenate parts ``(text, loss weight)``."""
        encoded = [(self.encode(text), weight) for text, weight in parts]
        ids = tuple(chain.from_iterable(part for part, _ in encoded))
        return Piece(ids, tuple(weight for part, weight in encoded for _ in part), ids)

    def questions(self, questions: Questions, weight: float = 0.3) -> Piece:
        """Concatenate texts; the last token of each must predict its answer."""
        ids: list[int] = []
        targets: list[int] = []
        weights: list[float] = []
        for text, answer in questions:
            encoded = self.encode(text)
            ids += encoded
            targets += [self.yes if answer else self.no] * len(encoded)
            weights += [0.0] * (len(encoded) - 1) + [0.0 if answer is None else weight]
        # The target of a position is stored one place after it.
        return Piece(tuple(ids), (0.0, *weights[:-1]), (ids[0], *targets[:-1]))

    def verdict(self, verdict: Verdict, reveal: bool) -> Piece:
        """A step under "Current Step: " with its three labels; each label is masked in the input unless ``reveal``.

        Each word of the step is a question too. Without these questions, tiny models spend their whole budget on
        learning which of a dozen words a verdict was about.
        """
        piece = self.questions([("Current Step: ", None), *word_questions(verdict)])
        for caption, label in zip(tiny.CHECK_CAPTIONS, verdict.labels, strict=True):
            (head,), answer = self.encode(caption), self.yes if label else self.no
            piece += Piece((head, answer if reveal else self.mask), (0.0, 1.0), (head, answer))
        return piece


def word_questions(verdict: Verdict) -> Questions:
    """The words of a step, each with a flag: is it right in this place?"""
    step, faults = verdict.step, set(verdict.faults)
    in_order = faults.isdisjoint(("skipped", "contradiction", "event", "repetition"))
    if isinstance(step, Claim):
        link = verdict.text.split(f"{step.verb} {step.object}", 1)[1].split(f" {step.value} {step.sign} ", 1)[0]
        return [
            (f"{step.event})", in_order),
            (f" {step.verb}", not faults & {"verb", "person"}),
            (f" {step.object}", "amount" not in faults),
            (link, None),
            (f" {step.value}", "carried" not in faults),
            (f" {step.sign}", not faults & {"operation", "misreading"}),
            (f" {step.right}", "operand" not in faults),
            (" =", None),
            (f" {step.result}", "arithmetic" not in faults),
            (f" {step.noun}", "unit" not in faults),
            (".", None),
        ]
    if isinstance(step, Sum):
        return [
            (f"{step.value}", faults.isdisjoint(("carried", "repetition", "event"))),
            (f" {step.sign}", not faults & {"operation", "misreading"}),
            (f" {step.right}", "amount" not in faults),
            (" =", None),
            (f" {step.result}", "arithmetic" not in faults),
            (".", None),
        ]
    if isinstance(step, Aside):
        return [
            (f"{step.event})", in_order),
            (" is about", "person" not in faults),
            (f" {step.name}", not faults & {"person", "name"}),
            (", so still", None),
            (f" {step.value}", "carried" not in faults),
            (f" {step.noun}", "unit" not in faults),
            (".", None),
        ]
    if step.kind == "answer":
        head, value = " answer is \\boxed{", str(step.value)
        return [("The", "early" not in faults), (head, None), (value, "answer" not in faults), ("}.", None)]
    return [(verdict.text, None)]


def draw_problem(rng: random.Random, levels: Mapping[str, Level]) -> Problem:
    """A training story of a level drawn by ``LEVEL_SHARES``."""
    level = rng.choices(list(LEVEL_SHARES), list(LEVEL_SHARES.values()))[0]
    return sample_from(rng, levels[level], "train")


def policy_lesson(encoder: Encoder, rng: random.Random, problem: Problem) -> Lesson:
    """A story under the policy's prompt, with a human-like solution."""
    solution = prompts.STEP_SEPARATOR.join(w.text for w in write_solution(problem, rng, POLICY_HABITS))
    prompt = prompts.policy_prompt(problem.text, [])
    return Lesson(encoder.piece((prompt, 0.0), (solution, 0.5), (prompts.END_OF_TURN, 0.5)))


def check_lesson(encoder: Encoder, rng: random.Random, problem: Problem, scramble: float, by_words: bool) -> Lesson:
    """A story, its solution, and two steps with verdicts per place; ``scramble`` is the share of scrambled steps."""
    solution = write_solution(problem, rng, PREFIX_HABITS)
    user = prompts.user_turn(problem.text, tiny.CHECK_SYSTEM)
    head = f"{tiny.START_OF_TURN}user\n{user}{tiny.END_OF_TURN}\n{tiny.START_OF_TURN}assistant\n"
    parts = list[tuple[str, float]]()
    length = len(encoder.encode(head))
    branches: list[tuple[int, Piece]] = []
    for written in solution:
        verdicts = [written] if rng.random() < (0.1 if scramble else 0.3) else []
        while len(verdicts) < 2:
            verdicts.append(draw_step_to_verify(rng, problem, written, scramble, by_words))
        branches += [(length, encoder.verdict(verdict, reveal=rng.random() < 0.3)) for verdict in verdicts]
        parts += [(written.text, 0.2 * written.is_correct), (prompts.STEP_SEPARATOR, 0.0)]
        length += len(encoder.encode(written.text)) + 1
    opening = encoder.questions(_actor_questions(problem, head)) if scramble else encoder.piece((head, 0.0))
    return Lesson(opening + encoder.piece(*parts[:-1]), tuple(branches))


def _actor_questions(problem: Problem, head: str) -> Questions:
    """The opening of a check lesson; at each event's actor, it asks whether the actor is the hero."""
    if problem.is_sum:
        return [(head, None)]
    questions: Questions = []
    rest = head
    for number, event in enumerate(problem.events, start=1):
        before, _, rest = rest.partition(f"\n{number}) {event.actor}")
        questions += [(f"{before}\n{number})", None), (f" {event.actor}", event.actor == problem.hero)]
    return [*questions, (rest, None)]


def recital_drill(encoder: Encoder, rng: random.Random, problem: Problem) -> Lesson:
    """The story, then its events in shuffled order, which teaches looking up an event by its number."""
    lines = problem.text.split("\n")[1:-1]
    shuffled = rng.sample(lines, len(lines))
    return Lesson(encoder.piece((problem.text + "\n\n", 0.0), *((f"{line}\n", 0.4) for line in shuffled)))


def _question(holds: bool) -> list[tuple[str, float]]:
    return [(tiny.CHECK_CAPTIONS[0], 0.0), (tiny.YES if holds else tiny.NO, 1.0), ("\n", 0.0)]


def arithmetic_drill(encoder: Encoder, rng: random.Random, scale: Scale) -> Lesson:
    """Equations, one per line, each followed by a yes or no: is it true? False results are off by 3 at most."""
    parts: list[tuple[str, float]] = []
    for _ in range(12):
        sign, right = rng.choice("+-"), rng.randint(1, scale.amounts)
        low, high = (0, scale.written - scale.amounts) if sign == "+" else (right, scale.written)
        left = rng.randint(low, high)
        true = compute(left, sign, right)
        shown = _same_or_near(rng, true)
        parts += [(f" {left} {sign} {right} =", 0.0), (f" {shown}", 0.5 * (shown == true)), *_question(shown == true)]
    return Lesson(encoder.piece(*parts))


def _same_or_near(rng: random.Random, number: int) -> int:
    return number if rng.random() < 0.5 else min(max(0, number + rng.choice((-3, -2, -1, 1, 2, 3))), LARGEST_NUMBER)


def equality_drill(encoder: Encoder, rng: random.Random, scale: Scale) -> Lesson:
    """Pairs of numbers, one per line, each followed by a yes or no: are they equal?"""
    parts: list[tuple[str, float]] = []
    for _ in range(16):
        first = rng.randint(0, scale.written)
        second = _same_or_near(rng, first)
        parts += [(f" {first} {second}", 0.0), *_question(first == second)]
    return Lesson(encoder.piece(*parts))


def word_drill(encoder: Encoder, rng: random.Random, language: Language) -> Lesson:
    """Verbs with signs, pairs of verbs and pairs of names, one per line, each with a yes or no: do they match?"""
    parts: list[tuple[str, float]] = []
    for _ in range(16):
        kind, same = rng.randrange(3), rng.random() < 0.5
        if kind == 0:
            first, second = rng.choice(language.verbs), rng.choice("+-")
            same = SIGN[first] == second
        else:
            choices = list(language.signs) if kind == 1 else list(language.names)
            first = rng.choice(choices)
            second = first if same else rng.choice([other for other in choices if other != first])
        parts += [(f" {first} {second}", 0.0), *_question(same)]
    return Lesson(encoder.piece(*parts))


def base_lesson(
    encoder: Encoder, rng: random.Random, levels: Mapping[str, Level], scramble: float, by_words: bool
) -> Lesson:
    """Draw one lesson of the base model's mixture.

    With ``scramble`` the mixture has more verification. ``by_words`` moves the scrambling, and 15 % of the lessons, to
    verbs, signs and names.
    """
    level = next(iter(levels.values()))
    scale = level.scale
    if by_words and rng.random() < 0.15:
        return word_drill(encoder, rng, level.language)
    if scramble and rng.random() < 0.1:
        return equality_drill(encoder, rng, scale) if rng.random() < 0.4 else arithmetic_drill(encoder, rng, scale)
    draw = rng.random()
    if draw < 0.06:
        return arithmetic_drill(encoder, rng, scale)
    problem = draw_problem(rng, levels)
    if draw < 0.12 and not problem.is_sum:
        return recital_drill(encoder, rng, problem)
    if draw < 0.36:
        return policy_lesson(encoder, rng, problem)
    return check_lesson(encoder, rng, problem, scramble, by_words)
