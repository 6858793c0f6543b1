"""The recorded history of a target, as every format reads it: runs, the files they read and made, and the sources.

Nothing here depends on a clock, on chance or on the order of a folder, so equal records give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from evidence.audit.records import records_of
from evidence.audit.sources import RAW, sources_of
from evidence.dvc import history
from evidence.dvc.history import MAIN_LOCK, Locked
from evidence.formats.artefacts import Artefact, artefacts
from evidence.record.ledger import RECORDS, SIGNED
from evidence.record.reading import Record, attesting
from evidence.record.signing import keys_named
from evidence.settings import SETTINGS
from ground.hashing import digest_path
from ground.io import DataError, sha256_of


@dataclass
class Run:
    """One stage of a lock and the record that attests it; ``content`` is a ``record.schema.StageRecord`` as JSON value.

    ``inputs`` is the data that the run read, ``outputs`` the data that it made, ``rooms`` the code and the locked
    packages that dvc.yaml names for the stage, each by path. ``start`` and ``end`` are ISO 8601 in UTC, ``packages``
    has the installed versions by name, and ``actor`` is empty in records of older versions.
    """

    root: Path
    stage: Locked
    record: Record
    params: dict[str, Any]
    actor: dict[str, Any]

    def __post_init__(self) -> None:
        self.name, self.content = self.stage.name, self.record.content
        self.inputs, self.outputs, self.rooms = (
            artefacts(self.content[kind]) for kind in ("inputs", "outputs", "rooms")
        )
        self.start, self.end = (str(self.content["times"][key]) for key in ("start", "end"))
        self.packages: dict[str, str] = self.content["environment"].get("packages", {})

    @cached_property
    def statement(self) -> Artefact | None:
        """The file of the signed statement about the record, or ``None``."""
        path = self.record.path.with_suffix(SIGNED)
        return self._on_disk(path) if path.is_file() else None

    @cached_property
    def file(self) -> Artefact:
        """The file of the record."""
        return self._on_disk(self.record.path)

    @cached_property
    def key_ids(self) -> list[str]:
        """The keys that the signed statement names; ``check`` verifies the signatures."""
        path = self.record.path.with_suffix(SIGNED)
        return keys_named(path.read_bytes(), self.statement.path) if self.statement else []

    def _on_disk(self, path: Path) -> Artefact:
        """A file by its place in the project; one in a remote has this place only after it is restored."""
        place, root, found = path.resolve(), self.root.resolve(), digest_path(path)
        own = place.relative_to(root) if place.is_relative_to(root) else RECORDS / self.name / path.name
        return Artefact(own.as_posix(), found.md5, found.sha256, found.size)


@dataclass
class Lineage:
    """The runs behind a target, producers first, and the sources; ``unrecorded`` are stages without a record here.

    ``artefacts`` is everything that a run read or made, without the ``code`` and lock files of all runs. ``external``
    was made by no recorded run, and ``final`` was read by none; all are sorted by path. ``start`` and ``end`` are the
    first start and the last end of a run. ``digest`` is the sha256 of the digests of all records: the identity of this
    history.
    """

    root: Path
    target: str | None
    runs: list[Run]
    unrecorded: list[Locked]

    def __post_init__(self) -> None:
        runs = self.runs
        sources = sources_of(self.root) if any(RAW in run.outputs for run in runs) else {}
        self.sources = dict(sorted(sources.items()))
        self.artefacts = _merged(run.inputs | run.outputs for run in runs)
        self.code = _merged(run.rooms for run in runs)
        read, made = _merged(run.inputs for run in runs), _merged(run.outputs for run in runs)
        self.external = {
            path: each for path, each in read.items() if not any(history.overlap(path, out) for out in made)
        }
        self.final = {path: each for path, each in made.items() if not any(history.overlap(path, dep) for dep in read)}
        self.start = min((run.start for run in runs), default="")
        self.end = max((run.end for run in runs), default="")
        self.digest = sha256_of(json.dumps([self.target, [[run.name, run.record.digest] for run in runs]]).encode())

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
        path, mark, pointer = target.partition("#")
        target = f"{Path(path).as_posix()}{mark}{pointer}"
        chosen = history.ancestors(stages, Path(path).as_posix())
    known = dict(sorted(chosen.items()))
    above = {n: {m.name for dep in s.deps for m in history.producers(known, dep)} for n, s in known.items()}
    runs, unrecorded = [], []
    for name in in_order(above):
        stage = chosen[name]
        if record := attesting(records_of(root, name), stage):
            runs.append(Run(root, stage, record, record.content["params"], record.content.get("actor") or {}))
        else:
            unrecorded.append(stage)
    if not runs and needs_record:
        raise DataError(
            f"{target or MAIN_LOCK}: no stage behind it has a record here; run the pipeline, or get the records of a "
            f"published run with `{SETTINGS.command} fetch`"
        )
    return Lineage(root, target, runs, unrecorded)


def _merged(parts: Iterable[Mapping[str, Artefact]]) -> dict[str, Artefact]:
    return dict(sorted({path: each for part in parts for path, each in part.items()}.items()))


def in_order(above: Mapping[str, Set[str]]) -> list[str]:
    """The keys, each after the keys in its value; of several that are ready, the first comes first."""
    order: dict[str, None] = {}
    while len(order) < len(above):
        waiting = [name for name in above if name not in order]
        ready = (name for name in waiting if above[name] - {name} <= order.keys())
        order[next(ready, waiting[0])] = None  # a circle can only come from an edited lock
    return list(order)


def text_of(value: Any) -> str:
    """A parameter's value as text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
