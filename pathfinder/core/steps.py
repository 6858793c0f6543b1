"""A scorer, its known words, input and output: solutions, candidate steps, step scores. No model code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from ground.io import DataError
from pathfinder.core.labels import OPTIMALITY
from pathfinder.core.prompts import FIRST_LABELS
from pathfinder.core.readings import DEFINITION, Reading, error_labels

_TOKEN = re.compile(r"\d+\.\d+|\d+|[^\W\d_]+|[^\w\s]|_")
_DECIMAL = "decimal number"
_MOST_WORDS = 3_000
"""A model that learnt from more different words than this has no word list."""
_NAMED = 5
"""The number of words that a message names."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A problem and the steps of one solution."""

    id: str
    problem: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Distinct steps that might follow ``prefix``. ``counts``: the number of samples per step in round ``round``."""

    problem: str
    prefix: tuple[str, ...]
    steps: tuple[str, ...]
    counts: tuple[int, ...] = ()
    round: int = 0


@dataclass(frozen=True, slots=True)
class StepScore:
    """Probabilities of ``<+>``; ``first`` has one for each first-pass label of the variant. Mode ``pass1`` leaves the
    reward NaN.

    ``other`` names a first-pass label at which the likeliest token is neither ``<+>`` nor ``<->``, if there is one.
    ``redundancy`` is the probability that the step is superfluous, from a published PRM that predicts it. ``means`` is
    the reading of the reward, None for the only score of a published PRM. ``core.readings`` explains them.
    """

    first: Mapping[str, float]
    reward: float
    other: str = field(default="", compare=False)
    redundancy: float | None = None
    means: Reading | None = "quality"

    @property
    def labels(self) -> dict[str, bool]:
        """The first-pass labels (empty for a variant without subtasks)."""
        return {name: p >= 0.5 for name, p in self.first.items()}

    @property
    def soundness(self) -> float | None:
        """The probability of no error: the smallest over the error labels, or the validity by a published PRM."""
        if errors := error_labels(self.first):
            return min(errors.values())
        return None if self.redundancy is None else self.reward

    @property
    def quality(self) -> float | None:
        """The probability that the step has no error and is useful."""
        if self.redundancy is not None:
            return max(0.0, self.reward - self.redundancy)
        return self.reward if self.means == "quality" and not math.isnan(self.reward) else None

    @property
    def optimality(self) -> float | None:
        """The probability that the step is useful if it has no error; None for a step with a predicted error."""
        if OPTIMALITY in self.first:
            return self.first[OPTIMALITY]
        if self.soundness is None or self.quality is None or self.has_error:
            return None
        return self.quality if self.redundancy is None else self.quality / self.soundness

    def read(self, reading: str) -> float:
        """The value of ``"soundness"`` or ``"quality"``; if the score lacks it, the value that it has."""
        wanted, other = (self.soundness, self.quality) if reading == "soundness" else (self.quality, self.soundness)
        found = other if wanted is None else wanted
        return self.reward if found is None else found

    @property
    def has_error(self) -> bool:
        """True if an error label is negative. Without error labels: if the reward is below one half."""
        return self.read("soundness") < 0.5

    @classmethod
    def of_row(cls, row: Mapping[str, float | None]) -> StepScore:
        """The score of one of our systems from a step of its prediction row; unknown keys are ignored."""
        given = {name: p for name in (*FIRST_LABELS, OPTIMALITY) if (p := row.get(name)) is not None}
        reward = row.get("reward")
        is_only_label = len(given) == 1 and reward is not None and reward in given.values()
        return cls(given, math.nan if reward is None else reward, means="soundness" if is_only_label else "quality")

    def row(self) -> dict[str, float | None]:
        """The score in prediction files; None for a label that the variant does not have."""
        reward = None if math.isnan(self.reward) else self.reward
        return {**dict.fromkeys(FIRST_LABELS), **self.first, "reward": reward}


@dataclass(frozen=True, slots=True)
class ScoredStep:
    """The typed score of one step.

    ``probabilities`` maps the labels of the first pass to the probability that the step has *no* error of that kind:
    ``math`` and ``consistency`` or, for the variant without separate categories, ``error_free``. ``reward`` is the
    probability that the step is correct given the predicted labels; None in mode "pass1". ``soundness`` answers "is
    there no error?", ``quality`` "is it free of errors and useful?", and ``optimality`` "is it useful?" for a step
    without a predicted error; each is None for a model without that reading. All are between 0 and 1, and higher is
    better.
    """

    text: str
    probabilities: Mapping[str, float]
    reward: float | None
    soundness: float | None = None
    quality: float | None = None
    optimality: float | None = None

    @property
    def math(self) -> float | None:
        """The probability of no math error; None for a model without this label."""
        return self.probabilities.get("math")

    @property
    def consistency(self) -> float | None:
        """The probability that the step is consistent with the text before it; None for a model without this label."""
        return self.probabilities.get("consistency")

    @property
    def errors(self) -> tuple[str, ...]:
        """The kinds of error that the model predicts: the names whose probability is below one half."""
        return tuple(name for name, p in error_labels(self.probabilities).items() if p < 0.5)

    @property
    def correct(self) -> bool:
        """True if the model predicts no error and the reward, if any, is at least one half."""
        return not self.errors and (self.reward is None or self.reward >= 0.5)

    @property
    def findings(self) -> tuple[str, ...]:
        """The faults of the step, in words: the predicted errors, or else a low quality or reward."""
        named = tuple("error" if name == "error_free" else f"{name} error" for name in self.errors)
        doubt = "low reward" if self.quality is None else "not useful" if self.probabilities else "wrong or not useful"
        return named or (() if self.correct else (doubt,))

    @property
    def has_error(self) -> bool:
        """True if the step is not sound. For a model without that reading: if it is not correct."""
        return not self.correct if self.soundness is None else self.soundness < 0.5

    def row(self) -> dict[str, Any]:
        """The step in JSON, without its text: the same keys in ``score``, in ``demo`` and over HTTP."""
        return {
            "math": self.math,
            "consistency": self.consistency,
            "reward": self.reward,
            "soundness": self.soundness,
            "quality": self.quality,
            "optimality": self.optimality,
            "probabilities": dict(self.probabilities),
            "errors": list(self.errors),
            "correct": self.correct,
        }


def typed_step(text: str, score: StepScore) -> ScoredStep:
    """The typed score of a step."""
    reward = None if math.isnan(score.reward) else score.reward
    return ScoredStep(text, dict(score.first), reward, score.soundness, score.quality, score.optimality)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdict on each step of a solution: correct or not and, if the system judges that, redundant or not."""

    correct: Sequence[bool]
    redundant: Sequence[bool] | None = None


def by_reading(steps: Sequence[StepScore], reading: str, threshold: float = 0.5) -> Verdicts:
    """The verdicts by a reading. By ``definition``, soundness decides on correctness and quality on redundancy."""
    if reading != DEFINITION:
        return Verdicts([step.read(reading) >= threshold for step in steps])
    redundant = [step.read("quality") < threshold for step in steps]
    return Verdicts([step.read("soundness") >= threshold for step in steps], redundant)


RoundScorer = Callable[[Mapping[str, Candidates]], Mapping[str, Sequence[StepScore | None]]]
"""Scores the candidates of a search's open problems, round after round. A key names the same problem in every round.

The score is None if a candidate's prompt is longer than the model's context.
"""


@dataclass(frozen=True, slots=True)
class Known:
    """The words (in lower case) and signs of the texts that a model learnt from, and their largest whole number.

    A model of a few million weights has seen some hundred words and judges unfamiliar texts at random. Large models
    have no list, because they learn from so many words that it would say nothing.
    """

    words: frozenset[str] = frozenset()
    largest: int = 0

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self | None:
        """The words, signs and largest number of the texts; None for more than ``_MOST_WORDS`` different words."""
        words: set[str] = set()
        largest = 0
        for text in texts:
            found, number = _read(text)
            words |= found
            largest = max(largest, number)
            if len(words) > _MOST_WORDS:
                return None
        return cls(frozenset(words), largest)

    @classmethod
    def of_json(cls, value: Any) -> Self | None:
        """Read the output of ``as_json``; None becomes None. Raises ``DataError`` for any other value."""
        if value is None:
            return None
        words, largest = (value.get(key) if isinstance(value, dict) else None for key in ("words", "largest_number"))
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or type(largest) is not int:
            raise DataError("known needs words (texts) and largest_number (integer); train the model again")
        return cls(frozenset(words), largest)

    def as_json(self) -> Mapping[str, Any]:
        """The value of ``known`` in ``pathfinder.json``."""
        return {"words": sorted(self.words), "largest_number": self.largest}

    def __str__(self) -> str:
        """A sentence for readers; empty without words."""
        names = [word for word in sorted(self.words) if len(word) > 3 and word.isalpha()]
        some = ", ".join(word[:20] for word in names[:: len(names) // _NAMED or 1][:_NAMED])
        trained = f"This model was trained on {len(self.words)} words and symbols (such as {some})"
        numbers = f"and on numbers up to {self.largest}"
        return f"{trained} {numbers}. Do not rely on its scores for other texts." if some else ""

    def unlike(self, solution: Solution) -> tuple[str, ...]:
        """How a solution differs from all texts that the model learnt from, in words; empty without differences."""
        if not self.words:
            return ()
        found, number = _read("\n".join([solution.problem, *solution.steps]))
        unknown = sorted(found - self.words)
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        named = ", ".join(word[:20] for word in unknown[:_NAMED])
        said = [f"unknown words or signs: {named}{more}"] if unknown else []
        return tuple(said + [f"a number above {self.largest}"] * (number > self.largest))


def _read(text: str) -> tuple[set[str], int]:
    """The words of a text, and its largest whole number. A number of more than 18 digits counts as 10 ** 18."""
    words, largest = set(), 0
    for token in _TOKEN.findall(text):
        if not token[0].isdecimal():  # a superscript is a digit, but not a number
            words.add(token.casefold())
        elif "." in token:
            words.add(_DECIMAL)
        else:
            largest = max(largest, int(token) if len(token) <= 18 else 10**18)
    return words, largest


class PRM(Protocol):
    """A model that scores steps: PathFinder-PRM in this process or behind a server, or a published PRM."""

    known: Known = Known()

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """Score every step of every solution; ``on_done`` receives the number of newly finished solutions.

        A solution that is longer than the model's context has no scores.
        """

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search."""
