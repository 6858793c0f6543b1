"""Best of n: of whole solutions sampled by the policy alone, the PRM's step scores choose one.

The rewards of a solution's steps (the same that the search reads) come to one score by their minimum, product, last
value or mean. The sample with the highest score is the answer; the first of equals. Samples without an answer are not
chosen, as they have no vote in maj@n; a problem that has none is wrong.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from pathfinder.benchmarks.accuracy import metrics
from pathfinder.benchmarks.grading import pass_at_k
from pathfinder.core.params import Report
from pathfinder.core.prompts import STEP_SEPARATOR
from pathfinder.prm.scorers import PRM
from pathfinder.prm.scoring import Solution

RULES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "product": math.prod,
    "last": lambda rewards: rewards[-1],
    "mean": statistics.fmean,
}


def steps_of(solution: str) -> tuple[str, ...]:
    """A whole solution's steps, as the search would have drawn them: between blank lines, none empty."""
    return tuple(step for part in solution.split(STEP_SEPARATOR) if (step := part.strip()))


def score_samples(scorer: PRM, samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per row of the sample stage ``{"set", "id", "rewards"}``: rewards of every step of every solution.

    Solutions that are equal step by step are scored once.
    """
    wanted: dict[tuple[str, tuple[str, ...]], Solution] = {}
    for row in samples:
        for number, text in enumerate(row["solutions"]):
            name = f"{row['set']}/{row['id']}, sample {number}"
            wanted.setdefault((row["question"], steps_of(text)), Solution(name, row["question"], steps_of(text)))
    scored = scorer.score(list(wanted.values()))
    rewards = {key: [step.reward for step in steps] for key, steps in zip(wanted, scored, strict=True)}
    return [
        {
            "set": row["set"],
            "id": row["id"],
            "rewards": [rewards[row["question"], steps_of(text)] for text in row["solutions"]],
        }
        for row in samples
    ]


def choose(rewards: Sequence[Sequence[float]], answers: Sequence[str | None]) -> dict[str, int | None]:
    """Per rule the chosen sample's place; None where no sample has steps and an answer."""
    pairs = enumerate(zip(rewards, answers, strict=True))
    able = {place: steps for place, (steps, answer) in pairs if steps and answer is not None}
    return {rule: _highest({place: score(steps) for place, steps in able.items()}) for rule, score in RULES.items()}


def _highest(scores: dict[int, float]) -> int | None:
    return max(scores, key=lambda place: scores[place], default=None)


def best_of_n(
    samples: Sequence[dict[str, Any]], scored: Sequence[dict[str, Any]], report: Report
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows with what each rule chose, and the figures in percent: every rule beside pass@1, maj@n and pass@n."""
    rows = [
        found | {"chosen": (chosen := choose(found["rewards"], row["answers"]))}
        | {"right": {rule: place is not None and row["right"][place] for rule, place in chosen.items()}}
        for row, found in zip(samples, scored, strict=True)
    ]  # fmt: skip
    n = min((len(row["right"]) for row in samples), default=0)
    figures: dict[str, Sequence[float]] = {
        "pass@1": [sum(row["right"]) / n for row in samples],
        f"maj@{n}": [float(row["majority_right"]) for row in samples],
        f"pass@{n}": [pass_at_k(sum(row["right"]), n, n) for row in samples],
    }
    figures |= {rule: [float(row["right"][rule]) for row in rows] for rule in RULES}
    return rows, {"n": n, **metrics([row["set"] for row in samples], figures, report)}
