"""The door to everything that scores steps: PathFinder-PRM in this process or behind a server, or a published PRM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ground.io import DataError
from pathfinder.baselines.adapter import AUTHORS
from pathfinder.baselines.registry import system as system_named
from pathfinder.core.params import Score
from pathfinder.core.steps import PRM
from pathfinder.models.imports import uncollected
from pathfinder.prm.opening import DEFAULTS, open_pathfinder
from pathfinder.tree.passes import Mode


@contextmanager
def open_prm(
    folder: Path,
    settings: Score = DEFAULTS,
    system: str | None = None,
    mode: Mode = Mode.BOTH,
    preset: str = "default",
) -> Iterator[PRM]:
    """The scorer of the model in ``folder``: ours, or the published PRM ``system`` used as its authors do.

    A published PRM runs in this process, whatever ``settings.engine`` is, and has no mode but ``both``; its
    prompt does not depend on ``preset`` (a name in ``PRESETS``). Raises
    ``DataError`` for an unknown system, another mode, or a folder that does not hold the model.
    """
    if system is None:
        with open_pathfinder(folder, settings, mode, preset) as scorer:
            yield scorer
        return
    if mode is not Mode.BOTH:
        raise DataError(f"mode {mode} asks for labels, which {system} does not have; use mode {Mode.BOTH}")
    with uncollected():  # a PRM behind a server needs no torch
        from pathfinder.baselines.scorer import BaselineScorer
    yield BaselineScorer(folder, system_named(system).methods[AUTHORS], settings.dtype, settings.token_budget)
