"""The published PRMs by name: every discriminative PRM of the paper's tables. A new one is a file and a line here."""

from __future__ import annotations

from pathfinder.baselines import llemma, math_psa, math_shepherd, qwen, reasoneval, rlhflow, skywork
from pathfinder.baselines.adapter import System
from pathfinder.core.io import DataError

_SYSTEMS = (
    llemma.SYSTEM,
    math_psa.SYSTEM,
    math_shepherd.SYSTEM,
    qwen.PRM,
    qwen.PRM800K,
    reasoneval.SYSTEM,
    rlhflow.MISTRAL,
    rlhflow.DEEPSEEK,
    skywork.SYSTEM,
)
SYSTEMS: dict[str, System] = {one.name: one for one in _SYSTEMS}
"""In the order of the files' names."""


def system(name: str) -> System:
    """The published PRM of that name; raises ``DataError`` that lists the names."""
    if name not in SYSTEMS:
        raise DataError(f"unknown system {name!r}; expected one of {', '.join(SYSTEMS)}")
    return SYSTEMS[name]
