"""Values that a shell offers for an argument: stages, outs and runs of the project in this folder."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ground.io import PathfinderError
from ground.show import offered

if TYPE_CHECKING:
    from evidence.dvc.pipeline import Stage


def stages(incomplete: str) -> list[str]:
    """Stages with their variants, such as train@full."""
    return offered(incomplete, _pipeline())


def targets(incomplete: str) -> list[str]:
    """Stages with and without their variants, and their outs. Bash splits a typed "train@f", so it offers nothing."""
    found = _pipeline()
    short = (name.partition("@")[0] for name in found)
    return offered(incomplete, [*found, *short, *_outs(found)])


def outs(incomplete: str) -> list[str]:
    """Outs of the stages, such as models/full."""
    return offered(incomplete, _outs(_pipeline()))


def runs(incomplete: str) -> list[str]:
    """The runs of the training, such as full."""
    parts = (name.partition("@") for name in _pipeline())
    return offered(incomplete, (variant for stage, _, variant in parts if stage == "train"))


def _outs(found: dict[str, Stage]) -> Iterable[str]:
    return (path for stage in found.values() for path in stage.all_outs)


def _pipeline() -> dict[str, Stage]:
    with suppress(PathfinderError, OSError):
        from evidence.dvc.pipeline import read_pipelines  # reads the settings, which --root may choose

        return read_pipelines(Path())
    return {}
