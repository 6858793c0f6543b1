"""The stages and origins that must exist: every stage of dvc.yaml, and an origin for everything that a stage reads.

A stage of another pipeline needs no record, so it may make only shipped data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evidence.audit.findings import Finding
from evidence.audit.workspace import Workspace
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.pipeline import MAIN, Stage
from evidence.record.identity import is_code


def with_missing(stages: dict[str, Locked], pipeline: dict[str, Stage]) -> dict[str, Locked]:
    """The stages of the locks, and the expected stages that are missing there, without digests."""
    return stages | {
        name: Locked(name, stage.cmd, dict.fromkeys(stage.deps, ""), dict.fromkeys(stage.all_outs, ""))
        for name, stage in pipeline.items()
        if name not in stages and name in _expected(stages, pipeline)
    }


def misplaced(pipeline: dict[str, Stage]) -> Iterator[Finding]:
    """A pipeline without stages, and stages of other pipelines that make more than shipped data."""
    others = [stage for stage in pipeline.values() if stage.file != MAIN.as_posix()]
    if len(others) == len(pipeline):
        yield Finding(MAIN.as_posix(), "defines no stage; restore it from git")
    for stage in others:
        own = (f"{history.EARLIER}/", f"{Path(stage.file).parent}/")
        if outside := [out for out in sorted(stage.all_outs) if not out.startswith(own)]:
            message = f"{stage.name} makes {', '.join(outside)} outside of {history.EARLIER}; move it to {MAIN}"
            yield Finding(stage.file, message, stages=(stage.name,))


def missing(chosen: dict[str, Locked], locked: dict[str, Locked], pipeline: dict[str, Stage]) -> Iterator[Finding]:
    """The chosen stages that no lock holds."""
    for name in chosen:
        if name not in locked:
            lock = Path(pipeline[name].file).with_name(history.MAIN_LOCK).as_posix()
            message = f"lacks stages that {pipeline[name].file} defines: they never ran, or were removed from it"
            yield Finding(lock, message, stages=(name,))


def without_origin(chosen: dict[str, Locked], pipeline: dict[str, Stage], workspace: Workspace) -> Iterator[Finding]:
    """The inputs that no stage makes, no ``.dvc`` file names and git does not track."""
    made = [out for stage in pipeline.values() for out in stage.all_outs]
    made += [out for stage in chosen.values() if not stage.cmd for out in stage.outs]
    for stage in (stage for stage in chosen.values() if stage.cmd):
        for path in stage.deps:
            if is_code(path) or any(history.overlap(out, path) for out in made) or workspace.is_tracked(path):
                continue
            if (defined := pipeline.get(stage.name)) is None or path in defined.deps:
                message = f"has no origin: no stage makes it, git does not track it, and {path}.dvc is missing"
                yield Finding(path, message, stages=(stage.name,))


def _expected(stages: dict[str, Locked], pipeline: dict[str, Stage]) -> set[str]:
    """The stages of dvc.yaml, and the earlier stages that made their inputs or the original of the shipped data."""
    main = {name for name, stage in pipeline.items() if stage.file == MAIN.as_posix()}
    read = {path for name in main for path in pipeline[name].deps}
    if history.SHIPPED_POINTER in stages:
        read.add(history.SHIPPED_LEVEL)
    levels = [path for path in read if path.startswith(f"{history.EARLIER}/")]
    above = {
        name
        for name, stage in pipeline.items()
        if any(history.overlap(level, path) for level in levels for path in stage.deps + stage.all_outs)
    }
    return main | above
