"""One way to open anything that scores steps: PathFinder-PRM in this process or behind a server, or a published PRM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pathfinder.baselines.adapter import AUTHORS
from pathfinder.baselines.registry import system as named
from pathfinder.baselines.scorer import BaselineScorer
from pathfinder.core.params import Score
from pathfinder.prm.scorers import PRM, open_scorer


@contextmanager
def open_prm(folder: Path, settings: Score, system: str | None = None) -> Iterator[PRM]:
    """The scorer of the model in ``folder``: ours, or the published PRM ``system`` by its authors' method."""
    if system is not None:
        method = named(system).methods[AUTHORS]
        yield BaselineScorer(folder, method, settings.dtype, settings.token_budget)
        return
    with open_scorer(folder, settings) as scorer:
        yield scorer
