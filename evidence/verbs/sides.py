"""The sides of a comparison: a revision, the project as it is, the run of a record, or the stage behind an out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from evidence.audit.claims import NONE
from evidence.dvc import history
from evidence.dvc.history import Locked, Record
from evidence.dvc.pipeline import read_pipelines, value_at
from evidence.record.environment import describe_environment
from evidence.record.identity import is_code
from evidence.verbs.revision import known_commit
from evidence.verbs.targets import Files, maker_of, target_of
from evidence.verbs.views import record_named
from ground.hashing import digest_path
from ground.io import DataError
from ground.settings import read_yaml

_WHILE_RUNNING = ("torch", "cuda", "variables")
"""Facts of an environment that only a running stage knows."""
Records = Callable[[str], list[Record]]
"""The records of a stage by its name."""


@dataclass(slots=True)
class Side:
    """One side: its title, its stages, the records of their runs, and the files as they were.

    ``revision`` is ``None`` if the side is not a revision of git.
    """

    title: str
    stages: dict[str, Locked]
    files: Files
    records: dict[str, Record] = field(default_factory=dict)
    revision: str | None = None


def sides_of(left: str, right: str | None, root: Path) -> tuple[Side, Side]:
    """The two sides, reduced to the stage that they have in common if one of them is a single stage.

    Raises ``DataError`` if a text names no side, or the sides have no stage in common.
    """
    records = cache(lambda stage: history.known_records(root, stage))
    one = _side(left, root, records)
    if right is None and len(one.stages) == 1:
        two = _now(next(iter(one.stages)), root, next(iter(one.records.values()), None))
    else:
        two = _side(right, root, records)
    for side, other in ((one, two), (two, one)):
        if len(side.stages) == 1 < len(other.stages):
            other.stages = {name: stage for name, stage in other.stages.items() if name in side.stages}
    if not one.stages or not two.stages:
        raise DataError(f"{one.title} and {two.title} have no stage in common")
    return one, two


def _side(text: str | None, root: Path, records: Records) -> Side:
    if text is None or (known_commit(root, text) and not (root / text).exists()):
        files = Files(root, text)
        stages = {n: s for n, s in files.stages.items() if s.file == history.MAIN_LOCK or not s.cmd}
        made = {name: record for name, stage in stages.items() if (record := _made(records, stage))}
        return Side(text or f"the current {history.MAIN_LOCK}", stages, files, made, text)
    if record := record_named(text, root):
        content = record.content
        stage = Locked(content["stage"], content["cmd"], record.inputs, record.outputs, content["params"])
        return Side(f"record {record.digest[:12]}", {stage.name: stage}, Files(root), {stage.name: record})
    target = target_of(text, root)
    files = Files(root, target.revision)
    maker = maker_of(files.stages, target.name) or files.stages.get(target.name)
    if maker is None:
        raise DataError(f"{text}: neither a revision, nor a record's digest, nor an output of a stage")
    found = _made(records, maker)
    return Side(str(target), {maker.name: maker}, files, {maker.name: found} if found else {}, target.revision)


def _now(name: str, root: Path, earlier: Record | None) -> Side:
    """A stage as it would run now: current parameters, code and environment; data and outs of the lock.

    Facts that only a running stage knows are taken from ``earlier``.
    """
    locked, defined = history.read_lock(root).get(name), read_pipelines(root).get(name)
    if locked is None or defined is None:
        raise DataError(f"{name}: not a stage of the current dvc.yaml and {history.MAIN_LOCK}; name a second side")
    params = read_yaml(root / defined.params_file) if defined.params else {}
    rooms = {path: digest_path(root / path) for path in defined.deps if is_code(path) and (root / path).exists()}
    deps = {path: locked.deps.get(path, NONE) for path in defined.deps} | {p: d.md5 for p, d in rooms.items()}
    values = {key: value_at(params, key, NONE) for key in defined.params}
    stage = Locked(name, defined.cmd, deps, locked.outs, values)
    if earlier is None:
        return Side("now", {name: stage}, Files(root))
    known = earlier.content["environment"]
    environment = describe_environment() | {key: known.get(key) for key in _WHILE_RUNNING}
    content = earlier.content | {"environment": environment, "rooms": {path: d.as_json() for path, d in rooms.items()}}
    return Side("now", {name: stage}, Files(root), {name: Record(root, "", content)})


def _made(records: Records, stage: Locked) -> Record | None:
    """The record of the run that made what the lock has."""
    return next((record for record in records(stage.name) if record.made(stage)), None)
