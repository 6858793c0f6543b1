"""The published PRMs by name: every discriminative PRM of the paper's tables. A new one is a file and a line here."""

from __future__ import annotations

from ground.text import UsageError, meant
from pathfinder.baselines import llemma, math_psa, math_shepherd, qwen, reasoneval, rlhflow, skywork
from pathfinder.baselines.adapter import System
from pathfinder.baselines.trl import SYSTEM as TRL
from pathfinder.prm.opening import CHECKPOINTS

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
SYSTEMS = {one.name: one for one in _SYSTEMS}
"""In the order of the files' names."""
FORMS = {TRL.name: TRL}
"""Checkpoint forms that anyone may have trained; the paper's tables do not have them."""


NAMES = (*CHECKPOINTS, *SYSTEMS, *FORMS)
"""All names that ``--system`` accepts."""


def system(name: str) -> System:
    """The published PRM or the form of that name. Raises ``UsageError``, which lists ``NAMES``, for an unknown name."""
    known = SYSTEMS | FORMS
    if name not in known:
        raise UsageError(f"unknown system {name!r}; {meant(name, NAMES)}expected one of {', '.join(NAMES)}")
    return known[name]
