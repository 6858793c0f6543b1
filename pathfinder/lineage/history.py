"""The history according to dvc.lock, the ``.dvc`` files and the records. ``check`` verifies it.

data/ is shipped, and the lock of the pretraining pipeline states how the same bytes were made. Therefore ``data.dvc``
is read as a stage whose dependencies are the outs of that pipeline, each with the digest of its copy in data/.
"""

from __future__ import annotations

import configparser
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError
from pathfinder.core.settings import read_yaml
from pathfinder.provenance.hashing import digest_listing
from pathfinder.provenance.pipeline import PIPELINES
from pathfinder.provenance.record import RECORDS

SHIPPED, SHIPPED_POINTER = "data", "data.dvc"
PRETRAINED = "artifacts/pretraining"
SHIPPED_LEVEL = f"{PRETRAINED}/quickstart"
"""The pretraining out that data/ is a copy of."""


@dataclass(frozen=True, slots=True)
class Locked:
    """One stage of dvc.lock: md5 by path, parameter values by key. ``data.dvc`` is a stage without a command."""

    name: str
    cmd: str
    deps: dict[str, str]
    outs: dict[str, str]
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """A lineage record as found on disk; ``content`` is empty if the file is not a record."""

    path: Path
    digest: str
    content: dict[str, Any]

    @property
    def is_intact(self) -> bool:
        """Whether the content has the digest in the file's name."""
        return bool(self.content) and self.path.stem == self.digest

    def has_inputs_of(self, stage: Locked) -> bool:
        """Whether the record is intact and the run had the dependencies and parameters in dvc.lock."""
        if not self.is_intact:
            return False
        read = self._md5s("inputs", "rooms")
        return {dep: read.get(dep) for dep in stage.deps} == stage.deps and self.content["params"] == stage.params

    def made(self, stage: Locked) -> bool:
        """Whether, in addition, the run made the outs in dvc.lock."""
        return self.has_inputs_of(stage) and self._md5s("outputs") == stage.outs

    def _md5s(self, *kinds: str) -> dict[str, str]:
        return {path: entry["md5"] for kind in kinds for path, entry in self.content.get(kind, {}).items()}


def read_lock(root: Path) -> dict[str, Locked]:
    """The stages of both dvc.lock files and the ``.dvc`` files of ``root``, by name.

    Raises ``DataError`` if the main dvc.lock does not exist or a file is not valid YAML.
    """
    locks = [root / file.with_name("dvc.lock") for file in PIPELINES]
    if not locks[0].exists():
        raise DataError(f"{locks[0]}: no such file, so no stage has run here; run the pipeline with `dvc repro`")
    bodies = [read_yaml(lock).get("stages", {}) for lock in locks if lock.exists()]
    stages = {name: _locked(name, body) for content in bodies for name, body in content.items()}
    for pointer in sorted(root.glob("*.dvc")):
        if pointer.is_file():
            stages[pointer.name] = _locked(pointer.name, read_yaml(pointer))
    if shipped := stages.get(SHIPPED_POINTER):
        stages[SHIPPED_POINTER] = replace(shipped, deps=_origins(root, shipped, stages))
    return stages


def _origins(root: Path, shipped: Locked, stages: dict[str, Locked]) -> dict[str, str]:
    """Pretraining out -> md5 of its copy in data/, if a store here has the listing that ``data.dvc`` names."""
    outs = [out for stage in stages.values() for out in stage.outs if out.startswith(f"{SHIPPED_LEVEL}/")]
    listings = (object_file(store, shipped.outs.get(SHIPPED, "")) for store in object_stores(root))
    listing = next((file for file in listings if file.is_file()), None)
    if listing is None:
        return {}
    files = {entry["relpath"]: entry["md5"] for entry in json.loads(listing.read_bytes())}
    return {out: digest_listing(files, out.removeprefix(f"{SHIPPED_LEVEL}/")) for out in outs}


def object_file(store: Path, md5: str) -> Path:
    """Where a cache or a remote keeps the object with this md5."""
    return store / "files" / "md5" / md5[:2] / md5[2:]


def object_stores(root: Path) -> Iterator[Path]:
    """DVC's cache and every remote that is a folder on this machine."""
    config = configparser.ConfigParser(interpolation=None)
    config.read([root / ".dvc" / "config", root / ".dvc" / "config.local"], encoding="utf-8")
    folder = (root / ".dvc").resolve()
    yield folder / config.get("cache", "dir", fallback="cache")
    for section in config.sections():
        url = config.get(section, "url", fallback="") if "remote" in section else ""
        if url and "://" not in url:
            yield (folder / url).resolve()


def read_records(root: Path, stage: str) -> list[Record]:
    """The records of a stage, newest first."""
    found = []
    for path in sorted((root / RECORDS / stage).glob("*.json")):
        raw = path.read_bytes()
        try:
            content = json.loads(raw)
        except ValueError:
            content = {}
        is_record = isinstance(content, dict) and content.keys() >= {"inputs", "outputs", "params", "times"}
        found.append(Record(path, hashlib.sha256(raw).hexdigest(), content if is_record else {}))
    return sorted(found, key=lambda record: str(record.content.get("times", {}).get("start")), reverse=True)


def producers(stages: dict[str, Locked], path: str) -> list[Locked]:
    """The stages with an out that is ``path``, contains it or is below it."""
    return [stage for stage in stages.values() if any(overlap(out, path) for out in stage.outs)]


def ancestors(stages: dict[str, Locked], path: str) -> dict[str, Locked]:
    """Every stage that ``path`` depends on; raises ``DataError`` if no stage makes it."""
    waiting = producers(stages, path)
    if not waiting:
        known = "\n".join(f"  {out}" for stage in stages.values() for out in stage.outs)
        raise DataError(f"{path}: not an output in dvc.lock. Expected one of\n{known}")
    found = set[str]()
    while waiting:
        stage = waiting.pop()
        if stage.name not in found:
            found.add(stage.name)
            waiting += [above for dep in stage.deps for above in producers(stages, dep)]
    return {name: stage for name, stage in stages.items() if name in found}


def as_shipped(path: str) -> str:
    """The part of data/ that is a copy of a pretraining out."""
    return path.replace(SHIPPED_LEVEL, SHIPPED, 1)


def overlap(one: str, other: str) -> bool:
    """Whether the paths are equal or one contains the other."""
    return one == other or other.startswith(f"{one}/") or one.startswith(f"{other}/")


def _locked(name: str, body: dict[str, Any]) -> Locked:
    params: dict[str, Any] = {}
    for values in (body.get("params") or {}).values():
        params |= values
    deps, outs = (
        {Path(entry["path"]).as_posix(): str(entry.get("md5", "")) for entry in body.get(kind) or []}
        for kind in ("deps", "outs")
    )
    return Locked(name, body.get("cmd", ""), deps, outs, params)
