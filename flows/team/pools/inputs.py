"""The inputs of one stage, brought from the remote to a clone that has never run the stages before it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from evidence.dvc.history import overlap, read_pointer
from evidence.dvc.lock import entries, replace_entries
from evidence.dvc.pipeline import read_pipeline
from evidence.dvc.stores import cache_of, object_file
from evidence.remote.guard import fetch_outs, fetch_pointer
from flows.local.dvc import Dvc
from flows.local.graph import Graph, meet
from flows.team.pools.order import Outs
from ground.io import DataError, atomic_file


def needed(root: Path, graph: Graph, name: str) -> dict[str, Outs]:
    """The outs that a stage reads, by the stage that made them, as the lock has them now."""
    locked, found = entries(root), dict[str, Outs]()
    for other in sorted(graph.upstream[name] & locked.keys()):
        if outs := [dict(out) for out in locked[other]["outs"] if meet([out["path"]], graph.stages[name].deps)]:
            found[other] = outs
    return found


def place(dvc: Dvc, name: str, inputs: Mapping[str, Outs]) -> int:
    """Put the inputs of a stage into the folder; returns the number of objects of outs.

    The folder forgets its own result of the stage: DVC takes it from the run cache, or runs the stage. Raises
    ``DataError`` if dvc.yaml has no such stage, or the remote lacks an object or has different bytes.
    """
    root, stages = dvc.root, read_pipeline(dvc.root)
    if name not in stages:
        raise DataError(f"{name}: no stage of dvc.yaml at this commit")
    known = {other: stages[other].all_outs if other in stages else () for other in inputs}
    if others := [
        str(out["path"]) for other, found in inputs.items() for out in found if out["path"] not in known[other]
    ]:
        raise DataError(f"{name}: the inputs name {others[0]!r}, which is no output of dvc.yaml at this commit")
    deps = stages[name].deps
    files = (path for path in sorted(root.glob("*.dvc")) if path.is_file())
    pointers = [path for path in files if meet(read_pointer(root, path).outs, deps)]
    for pointer in pointers:
        fetch_pointer(root, pointer.name)
    made = {other: {"cmd": stages[other].cmd, "outs": outs} for other, outs in inputs.items()}
    replace_entries(root, made, dropped=[name])
    outs = {str(out["path"]): str(out["md5"]) for found in inputs.values() for out in found}
    count = fetch_outs(root, outs, deps) if outs else 0
    folders = [out for out, md5 in outs.items() if md5.endswith(".dir")]
    # Take only the part of a folder that the stage reads.
    parts = [dep if dep.startswith(f"{out}/") else out for out in folders for dep in deps if overlap(out, dep)]
    targets = sorted({*parts, *(pointer.name for pointer in pointers)})
    if targets:
        dvc.checkout(*targets, force=True)
    for path in outs.keys() - folders:  # DVC does not check out files that git has
        with atomic_file(root / path) as temporary:
            shutil.copyfile(object_file(cache_of(root), outs[path]), temporary)
    return count
