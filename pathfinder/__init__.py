"""PathFinder-PRM as a library: label, train, score, grade, search and audit.

``docs/architecture.md`` shows the rooms. The names below are loaded on first use, so ``import pathfinder`` is cheap.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "PRM": "pathfinder.library",
    "ScoredSolution": "pathfinder.prm.results",
    "ScoredStep": "pathfinder.core.steps",
    "DataError": "ground.io",
    "Solution": "pathfinder.core.steps",
    "StepScore": "pathfinder.core.steps",
    "TransientError": "ground.io",
    "UnscoredSolution": "pathfinder.prm.results",
    "open_prm": "pathfinder.baselines.opening",
    "read_given": "pathfinder.core.given",
    "split_steps": "pathfinder.core.layouts",
}
__all__ = [
    "PRM",
    "DataError",
    "ScoredSolution",
    "ScoredStep",
    "Solution",
    "StepScore",
    "TransientError",
    "UnscoredSolution",
    "open_prm",
    "read_given",
    "split_steps",
]


def __dir__() -> list[str]:
    """The names for ``help``, also those that are not loaded yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Load a public name from its room. Raises ``DataError`` if it needs an extra that is not installed."""
    if name in _WHERE:
        from ground.text import extra_named

        with extra_named():
            return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
