"""The choice among several solutions of a problem by the rewards of their steps.

A rule turns the rewards of a solution's steps into one score. The solution with the highest score is chosen, the first
of equals. A solution without an answer is never chosen.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from pathfinder.core.prompts import STEP_SEPARATOR

RULES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "product": math.prod,
    "last": lambda rewards: rewards[-1],
    "mean": statistics.fmean,
}


def steps_of(solution: str) -> tuple[str, ...]:
    """Split a whole solution at blank lines into non-empty steps, as the search would have drawn them."""
    return tuple(step for part in solution.split(STEP_SEPARATOR) if (step := part.strip()))


def choose(rewards: Sequence[Sequence[float]], answers: Sequence[str | None]) -> dict[str, int | None]:
    """Per rule the index of the chosen sample; None if no sample has rewards and an answer."""
    pairs = enumerate(zip(rewards, answers, strict=True))
    eligible = {index: steps for index, (steps, answer) in pairs if steps and answer is not None}
    return {
        rule: max(eligible, key=lambda index: score(eligible[index]), default=None) for rule, score in RULES.items()
    }
