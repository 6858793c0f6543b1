"""The recorded history of a target, as every format reads it: runs, the files they read and made, and the sources.

Nothing here depends on a clock, on chance or on the order of a folder, so equal records give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from evidence.audit.records import records_of
from evidence.audit.sources import RAW, sources_of
from evidence.dvc import history
from evidence.dvc.history import MAIN_LOCK, Locked
from evidence.formats.artefacts import Artefact, artefacts, on_disk
from evidence.record.ledger import RECORDS, SIGNED
from evidence.record.reading import Record, attesting
from evidence.record.signing import keys_named
from evidence.settings import SETTINGS
from ground.io import DataError, sha256_of


@dataclass(frozen=True)
class Run:
    """One stage of a lock and the record that attests it (``record.schema.StageRecord`` as a JSON value).

    ``inputs`` is the data that the run read, ``outputs`` what it made, ``rooms`` the code and the locked packages that
    dvc.yaml names for the stage, each by path. ``start`` and ``end`` are ISO 8601 in UTC, ``packages`` has the
    installed versions by name, and ``actor`` is empty in records of older versions.
    """

    root: Path
    stage: Locked
    record: Record
    name: str
    content: dict[str, Any]
    inputs: dict[str, Artefact]
    outputs: dict[str, Artefact]
    rooms: dict[str, Artefact]
    params: dict[str, Any]
    start: str
    end: str
    packages: dict[str, str]
    actor: dict[str, Any]

    @cached_property
    def statement(self) -> Artefact | None:
        """The file of the signed statement about the record, or ``None``."""
        path = self.record.path.with_suffix(SIGNED)
        return on_disk(path, self._name_of(path)) if path.is_file() else None

    @cached_property
    def file(self) -> Artefact:
        """The file of the record."""
        return on_disk(self.record.path, self._name_of(self.record.path))

    @cached_property
    def key_ids(self) -> list[str]:
        """The keys that the signed statement names; ``check`` verifies the signatures."""
        if self.statement is None:
            return []
        return keys_named(self.record.path.with_suffix(SIGNED).read_bytes(), self.statement.path)

    def _name_of(self, path: Path) -> str:
        """The place in the project; a record in a remote has it only after it is restored."""
        place, root = path.resolve(), self.root.resolve()
        own = place.relative_to(root) if place.is_relative_to(root) else RECORDS / self.name / path.name
        return own.as_posix()


@dataclass(frozen=True)
class Lineage:
    """The runs behind a target, producers first, and the sources; ``unrecorded`` are stages without a record here.

    ``artefacts`` is everything that a run read or made, without the ``code`` and lock files of all runs. ``external``
    was made by no recorded run, and ``final`` was read by none; all are by path. ``start`` and ``end`` are the first
    start and the last end of a run. ``digest`` is the sha256 of the digests of all records: the identity of this
    history.
    """

    root: Path
    target: str | None
    runs: list[Run]
    unrecorded: list[Locked]
    sources: dict[str, dict[str, Any]]
    artefacts: dict[str, Artefact]
    code: dict[str, Artefact]
    external: dict[str, Artefact]
    final: dict[str, Artefact]
    start: str
    end: str
    digest: str

    def makers(self, path: str) -> list[Run]:
        """The runs with an output that is ``path``, contains it or is below it."""
        return [run for run in self.runs if any(history.overlap(out, path) for out in run.outputs)]

    def source_of(self, path: str) -> tuple[str, dict[str, Any]] | None:
        """The name and the manifest entry of the source that a path in the folder of sources belongs to."""
        below = PurePosixPath(path)
        return next(((n, s) for n, s in self.sources.items() if below.is_relative_to(f"{RAW}/{n}")), None)


def read_lineage(root: Path = Path("."), target: str | None = None, needs_record: bool = True) -> Lineage:
    """The history behind ``target``, or behind everything that dvc.yaml makes, from the locks and the records here.

    ``target`` is an out, a path in one, or either with ``#`` and a JSON pointer. Raises ``DataError`` if a lock
    cannot be read or does not contain the target, or if ``needs_record`` and no stage behind it has a record here.
    """
    stages = history.read_lock(root)
    if target is None:
        chosen = history.behind(stages, [name for name, stage in stages.items() if stage.file == history.MAIN_LOCK])
    else:
        chosen = history.ancestors(stages, Path(target.partition("#")[0]).as_posix())
    runs, unrecorded = [], []
    for name in producers_first(chosen):
        stage = chosen[name]
        if record := attesting(records_of(root, name), stage):
            runs.append(_run(root, stage, record))
        else:
            unrecorded.append(stage)
    if not runs and needs_record:
        raise DataError(
            f"{target or MAIN_LOCK}: no stage behind it has a record here; run the pipeline, or get the records of a "
            f"published run with `{SETTINGS.command} fetch`"
        )
    sources = sources_of(root) if any(RAW in run.outputs for run in runs) else {}
    read = {path: each for run in runs for path, each in run.inputs.items()}
    made = {path: each for run in runs for path, each in run.outputs.items()}
    code = {path: each for run in runs for path, each in run.rooms.items()}
    everything = {path: each for run in runs for path, each in (run.inputs | run.outputs).items()}
    identity = json.dumps([target, [[run.name, run.record.digest] for run in runs]])
    return Lineage(
        root,
        target,
        runs,
        unrecorded,
        dict(sorted(sources.items())),
        dict(sorted(everything.items())),
        dict(sorted(code.items())),
        external={path: read[path] for path in sorted(read) if not any(history.overlap(path, out) for out in made)},
        final={path: made[path] for path in sorted(made) if not any(history.overlap(path, dep) for dep in read)},
        start=min((run.start for run in runs), default=""),
        end=max((run.end for run in runs), default=""),
        digest=sha256_of(identity.encode()),
    )


def _run(root: Path, stage: Locked, record: Record) -> Run:
    content = record.content
    return Run(
        root,
        stage,
        record,
        stage.name,
        content,
        artefacts(content["inputs"]),
        artefacts(content["outputs"]),
        artefacts(content["rooms"]),
        dict(content["params"]),
        content["times"]["start"],
        content["times"]["end"],
        dict(content["environment"].get("packages", {})),
        dict(content.get("actor") or {}),
    )


def producers_first(stages: Mapping[str, Locked]) -> list[str]:
    """The names in an order in which every stage comes after those whose outs it reads; else by name."""
    known = dict(sorted(stages.items()))
    return in_order({n: {m.name for dep in s.deps for m in history.producers(known, dep)} for n, s in known.items()})


def in_order(above: Mapping[str, Set[str]]) -> list[str]:
    """The keys, each after those in its value; the first one that is ready comes first."""
    order: dict[str, None] = {}
    while len(order) < len(above):
        waiting = [name for name in above if name not in order]
        ready = (name for name in waiting if above[name] - {name} <= order.keys())
        order[next(ready, waiting[0])] = None  # a circle can only come from an edited lock
    return list(order)


def text_of(value: Any) -> str:
    """A parameter's value as text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
