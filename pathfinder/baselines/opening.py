"""Open any model that scores steps: PathFinder-PRM in this process or behind a server, or a published PRM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ground.text import UsageError
from pathfinder.core.params import Score
from pathfinder.core.steps import PRM
from pathfinder.models.folders import OpenedModel, open_model, uncollected
from pathfinder.prm.opening import DEFAULTS, open_pathfinder
from pathfinder.tree.passes import Mode

if TYPE_CHECKING:
    from pathfinder.baselines.adapter import Method


@contextmanager
def open_prm(
    folder: Path,
    settings: Score = DEFAULTS,
    system: str | None = None,
    mode: Mode = Mode.BOTH,
    preset: str = "default",
) -> Iterator[PRM]:
    """The scorer of the model in ``folder``: ours, or the published PRM ``system`` used as its authors do.

    A published PRM runs in this process, whatever ``settings.engine`` is, and has only the mode ``both``; its prompt
    does not depend on ``preset`` (a name in ``PRESETS``). Raises ``DataError`` for an unknown system, a mode that it
    does not have, or a folder that does not hold the model.
    """
    method = method_of(system, mode)  # a wrong name is refused before the folder is opened
    with open_with(open_model(folder), settings, method, mode, preset) as scorer:
        yield scorer


def method_of(system: str | None, mode: Mode) -> Method | None:
    """The authors' way to use the published PRM ``system``; None for PathFinder-PRM. Raises ``UsageError``."""
    if system is None:
        return None
    if mode is not Mode.BOTH:
        raise UsageError(f"mode {mode} asks for labels, which {system} does not have; use mode {Mode.BOTH}")
    from pathfinder.baselines.registry import system as system_named

    return system_named(system).methods["authors"]


@contextmanager
def open_with(model: OpenedModel, settings: Score, method: Method | None, mode: Mode, preset: str) -> Iterator[PRM]:
    """The scorer of an open model: PathFinder-PRM if ``method`` is None, otherwise a published PRM."""
    if method is None:
        with open_pathfinder(model, settings, mode, preset) as scorer:
            yield scorer
        return
    with uncollected():  # a PRM behind a server needs no torch
        from pathfinder.baselines.scorer import BaselineScorer
    yield BaselineScorer(model, method, settings.dtype, settings.token_budget)
