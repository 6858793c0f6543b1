"""The systems by name: every discriminative PRM of the paper's tables. A new one is a file and a line."""

from __future__ import annotations

from types import ModuleType

from pathfinder.baselines.adapter import System
from pathfinder.core.io import DataError

_FILES = [value for value in list(vars().values()) if isinstance(value, ModuleType)]
SYSTEMS: dict[str, System] = {
    one.name: one for file in _FILES for one in vars(file).values() if isinstance(one, System)
}


def system(name: str) -> System:
    """The system of that name; raises ``DataError`` that lists the names."""
    if name not in SYSTEMS:
        raise DataError(f"unknown system {name!r}; expected one of {', '.join(SYSTEMS)}")
    return SYSTEMS[name]
