"""A PRM as the scorer of a guided search."""

from __future__ import annotations

from collections.abc import Sequence

from pathfinder.policy.search import Round, Scored, StepScorer
from pathfinder.prm.steps import PRM, Candidates


def prm_pick(prm: PRM, rejects: bool = True) -> StepScorer:
    """Rewards from ``prm``; with ``rejects``, a negative first-pass label rejects a candidate, as published."""
    score_round = prm.rounds()

    def pick(rounds: Sequence[Round]) -> list[list[Scored]]:
        scores = score_round({r.name: Candidates(r.problem, r.prefix, r.steps) for r in rounds})
        return [[Scored(step.reward, rejects and step.has_error) for step in scores[r.name]] for r in rounds]

    return pick
