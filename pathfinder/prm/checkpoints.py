"""Checkpoints of PathFinder-PRM that the authors published. They are evaluated as our own runs are, without training.

A profile lists them under ``baselines``, together with the published PRMs of ``pathfinder.baselines``.
"""

from __future__ import annotations

from pathlib import Path

from pathfinder.core.runs import parse_run

FETCHED = Path("artifacts/raw/models")
CHECKPOINTS = {"pathfinder-prm-7b": "PathFinder-PRM-7B"}
"""The name in profiles and files, and the one in the paper's tables."""


def model_of(name: str) -> Path:
    """The model folder of a run or a checkpoint; raises ``DataError`` if it is the name of neither."""
    return FETCHED / name if name in CHECKPOINTS else Path("models") / parse_run(name).name


def titles_of(name: str) -> dict[str, list[str]]:
    """What the metrics of a checkpoint hold in addition: its name in the paper's tables."""
    return {"titles": [CHECKPOINTS[name]]} if name in CHECKPOINTS else {}
