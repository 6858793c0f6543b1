"""One stage where it really runs: in the folder of the flow, or in a worker's clone."""

from __future__ import annotations

from flows.dvc import Dvc, OnLine, State
from flows.pools.table import Needs


def run_stage(dvc: Dvc, name: str, force: bool, on_line: OnLine, needs: Needs) -> State:
    """Run a stage if it is out of date, or restore its outs from the cache; raises as ``Dvc.reproduce`` does."""
    return dvc.reproduce(name, force, on_line, needs.time_s)
