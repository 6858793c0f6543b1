"""A PRM for search-and-learn (6f81cac): return ``PathFinder(config)`` from its ``load_prm``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pathfinder.adapters.client import StepRewards


class PathFinder:
    """Scores the steps of answers; ``prm_path`` of the configuration is a model or the address of a server."""

    def __init__(self, search_config: Any) -> None:
        self._rewards = StepRewards(search_config.prm_path, split="blank")

    def score(self, questions: Sequence[str], outputs: Sequence[Sequence[str]]) -> list[list[list[float]]]:
        """The rewards of each answer's steps, which blank lines separate, or the floor.

        Raises as ``StepRewards.steps`` does.
        """
        pairs = [(question, text) for question, texts in zip(questions, outputs, strict=True) for text in texts]
        found = iter(self._rewards.steps(pairs))
        return [[next(found) or [self._rewards.floor] for _ in texts] for texts in outputs]
