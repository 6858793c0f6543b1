"""One stage, or a part of one, on the machine where it runs: in the folder of the flow, or in a worker's clone."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from evidence.dvc.pipeline import read_pipeline
from extras.unfinished import HOME, carried
from flows import storage
from flows.dvc import Dvc, OnLine, State
from flows.team.pools.slots import slots_held
from flows.team.pools.table import Needs
from pathfinder.core.parts import PARTS


def run_stage(
    dvc: Dvc, name: str, force: bool, on_line: OnLine, needs: Needs, is_writer: Callable[[], bool] = lambda: True
) -> State:
    """Run a stage if it is out of date, or restore its outs from the cache; raises as ``Dvc.reproduce`` does.

    It holds the slots that it needs, and its unfinished work is on the remote too while it ``is_writer``.
    """
    with (
        slots_held(needs.slots, dvc.check, on_line),
        carried(storage.shared(dvc.root, HOME), dvc.root, name, on_line, is_writer=is_writer),
    ):
        return dvc.reproduce(name, force, on_line, needs.time_s)


def run_part(dvc: Dvc, name: str, part: str, on_line: OnLine, needs: Needs) -> None:
    """Compute a part of a stage and send it to the remote; raises as ``Dvc.reproduce`` does."""
    stage = read_pipeline(dvc.root)[name]
    with (
        slots_held(needs.slots, dvc.check, on_line),
        carried(storage.shared(dvc.root, HOME), dvc.root, name, on_line, is_part=True),
    ):
        dvc.part(stage.cmd, part, on_line, needs.time_s)
    shutil.rmtree(dvc.root / PARTS / name, ignore_errors=True)
