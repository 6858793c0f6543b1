"""The systems by name: every discriminative PRM of the paper's tables. A new one is a file and a line here."""

from __future__ import annotations

from stages.core.baselines import llemma, math_psa, math_shepherd, qwen, reasoneval, rlhflow, skywork
from stages.core.baselines.adapter import System
from stages.core.io import DataError

SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        math_shepherd.SYSTEM,
        math_psa.SYSTEM,
        rlhflow.MISTRAL,
        rlhflow.DEEPSEEK,
        skywork.SYSTEM,
        reasoneval.SYSTEM,
        llemma.SYSTEM,
        qwen.PRM,
        qwen.PRM800K,
    )
}


def system(name: str) -> System:
    """The system of that name; raises ``DataError`` that lists the names."""
    if name not in SYSTEMS:
        raise DataError(f"unknown system {name!r}; expected one of {', '.join(SYSTEMS)}")
    return SYSTEMS[name]
