"""The decision rules of ProcessBench: whether a step is correct, and where the scoring of a solution may stop."""

from __future__ import annotations

from pathfinder.core.steps import StepScore
from pathfinder.prm.readings import Stop

RULES = ("both", "pass1")


def is_correct(step: StepScore, rule: str) -> bool:
    """Whether the decision rule calls the step correct."""
    return not step.has_error if rule == "pass1" else step.reward >= 0.5


def until_both(count: int) -> Stop:
    """Make the callback that stops each of ``count`` solutions once every rule has called a step incorrect."""
    waiting = [set(RULES) for _ in range(count)]

    def stop(solution: int, step: StepScore) -> bool:
        waiting[solution] -= {rule for rule in RULES if not is_correct(step, rule)}
        return not waiting[solution]

    return stop
