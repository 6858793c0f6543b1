"""The published PRMs by name: every discriminative PRM of the paper's tables. A new one is a file and a line here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ground.io import DataError
from ground.text import meant
from pathfinder.baselines import llemma, math_psa, math_shepherd, qwen, reasoneval, rlhflow, skywork
from pathfinder.baselines.adapter import System
from pathfinder.baselines.trl import SYSTEM as TRL

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


def by_name(systems: Sequence[System]) -> dict[str, System]:
    """The systems by name, in their order; raises ``ValueError`` if a name or a title of the paper repeats."""
    for kind, names in (
        ("name", [system.name for system in systems]),
        ("title", [title for system in systems for title in system.titles]),
    ):
        if repeated := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"{kind} {repeated[0]!r} belongs to several systems; give each system its own")
    return {system.name: system for system in systems}


SYSTEMS = by_name(_SYSTEMS)
"""In the order of the files' names."""
FORMS = by_name([TRL])
"""Forms of a checkpoint that anyone may have trained: no rows of the paper's tables."""


def system(name: str) -> System:
    """The published PRM or the form of that name. Raises ``DataError``, which lists the names, for an unknown one."""
    known = SYSTEMS | FORMS
    if name not in known:
        raise DataError(f"unknown system {name!r}; {meant(name, known)}expected one of {', '.join(known)}")
    return known[name]
