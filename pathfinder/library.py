"""PathFinder-PRM as an object: load it once, score solutions, get typed results. ``docs/library.md`` has examples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pathfinder.core.io import DataError
from pathfinder.core.steps import PRM as Scores
from pathfinder.core.steps import Solution, StepScore
from pathfinder.models.model import stored_dtype
from pathfinder.prm.scoring import Scorer
from pathfinder.sources.named_models import model_folder
from pathfinder.tree.passes import Mode


@dataclass(frozen=True, slots=True)
class ScoredStep:
    """The typed score of one step.

    ``labels`` maps the labels of the first pass to the probability that the step has *no* error of that kind:
    ``math`` and ``consistency`` or, for the variant without separate categories, ``error_free``. ``reward`` is the
    probability that the step is correct given the predicted labels; None in mode "pass1". All are between 0 and 1, and
    higher is better.
    """

    text: str
    labels: Mapping[str, float]
    reward: float | None

    @property
    def math(self) -> float | None:
        """The probability of no math error; None for a model without this label."""
        return self.labels.get("math")

    @property
    def consistency(self) -> float | None:
        """The probability that the step is consistent with what precedes it; None for a model without this label."""
        return self.labels.get("consistency")

    @property
    def errors(self) -> tuple[str, ...]:
        """The names in ``labels`` whose probability is below one half: the kinds of error that the model predicts."""
        return tuple(name for name, p in self.labels.items() if p < 0.5)

    @property
    def correct(self) -> bool:
        """Whether no error is predicted and the reward, if there is one, is at least one half."""
        return not self.errors and (self.reward is None or self.reward >= 0.5)


@dataclass(frozen=True, slots=True)
class ScoredSolution:
    """The scores of a solution's steps; none if a prompt is longer than the model's context (``too_long``)."""

    problem: str
    steps: tuple[ScoredStep, ...]
    too_long: bool = False

    @property
    def first_error(self) -> int | None:
        """The index of the first step that is not correct, from 0; None if every step is."""
        return next((place for place, step in enumerate(self.steps) if not step.correct), None)

    @property
    def rewards(self) -> list[float]:
        """The rewards in the order of the steps. Raises ``ValueError`` in mode "pass1", which gives none."""
        found = [step.reward for step in self.steps if step.reward is not None]
        if len(found) < len(self.steps):
            raise ValueError('mode "pass1" gives no rewards; load the model with mode "both"')
        return found


class PRM:
    """A PathFinder-PRM in this process."""

    def __init__(self, scorer: Scores) -> None:
        self._scorer = scorer

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        revision: str | None = None,
        dtype: Literal["auto", "float32", "bfloat16"] = "auto",
        device: Literal["auto", "cpu", "cuda"] | str = "auto",
        mode: Literal["both", "pass1", "positive", "all"] = "both",
        preset: Literal["default", "official-processbench", "official-prmbench", "official-search"] = "default",
    ) -> Self:
        """Load a model folder or a repository of the Hub.

        Args:
            model: a folder that ``train`` wrote, any folder in the form of the published checkpoint, or ``owner/name``.
            revision: a commit, branch or tag of the repository; the authors' checkpoint has a pinned default.
            dtype: "auto" is that of the files.
            device: "auto" is the GPU, if there is one. Other names are PyTorch's, such as "cuda:1".
            mode: "both" reads the labels and then the reward (paper, algorithm 1); ``pathfinder score --help`` explains
                the others.
            preset: the prompt: the training prompt, or that of a published runner.

        Raises:
            DataError: the model does not exist, is broken or is not a PathFinder-PRM.
            TransientError: the Hub cannot be reached.
        """
        folder = model_folder(model, revision)
        chosen = stored_dtype(folder) if dtype == "auto" else dtype
        where = None if device == "auto" else str(device)
        return cls(Scorer(folder, preset, chosen, mode=Mode(mode), where=where))

    def score(self, problem: str, steps: Sequence[str]) -> ScoredSolution:
        """Score every step of one solution. Raises ``DataError`` if there is no step."""
        return self.score_many([(problem, steps)])[0]

    def score_many(self, solutions: Iterable[tuple[str, Sequence[str]]]) -> list[ScoredSolution]:
        """Score pairs of problem and steps, in their order. Solutions of the same problem share its computation.

        Raises ``DataError``, which counts from 0, for a solution without steps or with steps that are no texts.
        """
        given = [_solution(number, *pair) for number, pair in enumerate(solutions)]
        return [_scored(*pair) for pair in zip(given, self._scorer.score(given), strict=True)]


def _solution(number: int, problem: str, steps: Sequence[str]) -> Solution:
    texts = (problem, *steps)
    if isinstance(steps, str) or not steps or not all(isinstance(text, str) for text in texts):
        raise DataError(f"solution {number}: expected a problem and a list of steps, at least one, all of them texts")
    return Solution(str(number), problem, tuple(steps))


def _scored(solution: Solution, scores: Sequence[StepScore]) -> ScoredSolution:
    steps = tuple(
        ScoredStep(text, dict(score.first), None if math.isnan(score.reward) else score.reward)
        for text, score in zip(solution.steps, scores, strict=False)
    )
    return ScoredSolution(solution.problem, steps, too_long=not scores)
