"""A PRM as the scorer of a guided search."""

from __future__ import annotations

from collections.abc import Sequence

from pathfinder.policy.search import Round, Scored
from pathfinder.prm.scorers import PRM
from pathfinder.prm.scoring import Candidates


class PRMPick:
    """A PRM as a scorer of candidate steps; a negative first-pass label of ours rejects one, as published."""

    def __init__(self, scorer: PRM, rejects: bool = True) -> None:
        self._rounds, self._rejects = scorer.rounds(), rejects

    def __call__(self, rounds: Sequence[Round]) -> list[list[Scored]]:
        """All candidates of all open problems in one batch, over the trunks that the round before left."""
        asked = {r.name: Candidates(r.problem, r.prefix, r.steps) for r in rounds}
        scores = self._rounds.score(asked)
        return [[Scored(step.reward, self._rejects and step.has_error) for step in scores[r.name]] for r in rounds]
