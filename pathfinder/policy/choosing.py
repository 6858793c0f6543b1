"""The choice among several solutions of a problem by the rewards of their steps.

A score turns the rewards of a solution's steps into one number. "Best of n" chooses the solution with the highest
score. "Weighted vote" adds the scores of all solutions with the same answer and chooses the answer with the largest
sum, as huggingface/search-and-learn@6f81cac does (``src/sal/utils/math.py``, there with the score "last"). In a tie,
the first is chosen. A solution without an answer is never chosen and has no vote.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

READING: Final = "quality"
"""The reading that guides a search: a step has to be right and bring the solution forward."""
SCORES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "product": math.prod,
    "last": lambda rewards: rewards[-1],
    "mean": statistics.fmean,
}
BEST, WEIGHTED = "best of", "weighted vote of"
RULES: dict[str, tuple[str, str]] = {
    **{name: (BEST, name) for name in SCORES},
    **{f"weighted_{name}": (WEIGHTED, name) for name in SCORES},
}
"""The method and the score of each rule."""
COLUMNS: dict[str, str] = {}
"""The rules that have a column in the report's main results, with its title."""


def choose(rewards: Sequence[Sequence[float] | None], votes: Sequence[str | None]) -> dict[str, int | None]:
    """The index of the chosen sample for each rule; None if no sample has rewards and an answer.

    ``votes`` are the samples' answers, in which equal answers are spelled alike (``Grader.votes``). Among samples with
    the answer of a weighted vote, the first is chosen.
    """
    pairs = enumerate(zip(rewards, votes, strict=True))
    eligible = {index: steps for index, (steps, vote) in pairs if steps and vote is not None}
    chosen = {}
    for rule, (way, name) in RULES.items():
        scores = {index: SCORES[name](steps) for index, steps in eligible.items()}
        if way == WEIGHTED:
            scores = _by_answer(scores, votes)
        chosen[rule] = max(scores, key=scores.__getitem__, default=None)
    return chosen


def _by_answer(scores: Mapping[int, float], votes: Sequence[str | None]) -> dict[int, float]:
    """For each vote, the sum of the scores with this vote, under the index of the first."""
    sums: dict[int, float] = defaultdict(float)
    first: dict[str | None, int] = {}
    for index, score in scores.items():
        sums[first.setdefault(votes[index], index)] += score
    return sums
