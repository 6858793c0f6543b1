"""What dvc.lock, the ``.dvc`` files and the records say was made: read here, trusted nowhere (``check`` re-hashes).

data/ is shipped, and the pretraining pipeline's lock says how the same bytes were made: ``data.dvc`` is read as a stage
whose dependencies are those outs, each at the digest that data/ has for it.
"""

from __future__ import annotations

import configparser
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from pathfinder.core.io import DataError
from pathfinder.provenance.hashing import digest_listing
from pathfinder.provenance.pipeline import PIPELINES
from pathfinder.provenance.record import RECORDS

SHIPPED, SHIPPED_POINTER = "data", "data.dvc"
PRETRAINED = "artifacts/pretraining"
SHIPPED_LEVEL = f"{PRETRAINED}/quickstart"
"""What data/ is a copy of."""


@dataclass(frozen=True, slots=True)
class Locked:
    """One stage of dvc.lock: md5 by path, parameter values by key. ``data.dvc`` is a stage without a command."""

    name: str
    cmd: str
    deps: dict[str, str]
    outs: dict[str, str]
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as found; ``content`` is empty where the file cannot be read."""

    path: Path
    digest: str
    content: dict[str, Any]

    @property
    def is_intact(self) -> bool:
        """Whether the content still has the digest that the name claims."""
        return bool(self.content) and self.path.stem == self.digest

    def md5s(self, *kinds: str) -> dict[str, str]:
        """md5 by path of the named parts (``inputs``, ``rooms``, ``code``, ``outputs``)."""
        return {path: entry["md5"] for kind in kinds for path, entry in self.content.get(kind, {}).items()}

    def has_inputs_of(self, stage: Locked) -> bool:
        """Whether it was made from what dvc.lock says: the same dependencies and parameters."""
        read = self.md5s("inputs", "rooms")
        return {dep: read.get(dep) for dep in stage.deps} == stage.deps and self.content["params"] == stage.params

    def made(self, stage: Locked) -> bool:
        """Whether it is a run that made what dvc.lock says, from what dvc.lock says."""
        return self.has_inputs_of(stage) and self.md5s("outputs") == stage.outs


def read_lock(root: Path) -> dict[str, Locked]:
    """Every stage of both pipelines' locks and every ``.dvc`` file beside the first, by name; raises ``DataError``."""
    path, *others = (root / file.with_name("dvc.lock") for file in PIPELINES)
    if not path.exists():
        raise DataError(f"{path}: no such file; nothing has been made here yet. Run the pipeline with `dvc repro`")
    locks = [path, *(other for other in others if other.exists())]
    stages = {name: _locked(name, body) for lock in locks for name, body in (_yaml(lock).get("stages") or {}).items()}
    for pointer in sorted(root.glob("*.dvc")):
        if pointer.is_file():
            stages[pointer.name] = _locked(pointer.name, _yaml(pointer))
    if shipped := stages.get(SHIPPED_POINTER):
        stages[SHIPPED_POINTER] = replace(shipped, deps=_origins(root, shipped, stages))
    return stages


def _origins(root: Path, shipped: Locked, stages: dict[str, Locked]) -> dict[str, str]:
    """Pretraining out -> md5 of the same part of data/, by the listing that ``data.dvc`` names."""
    outs = [out for stage in stages.values() for out in stage.outs if out.startswith(f"{SHIPPED_LEVEL}/")]
    files = shipped_files(root, shipped.outs.get(SHIPPED, "")) if outs else {}
    return {out: digest_listing(files, out.removeprefix(f"{SHIPPED_LEVEL}/")) for out in outs} if files else {}


def shipped_files(root: Path, md5: str) -> dict[str, str]:
    """md5 by path of the files of data/, as the ``.dir`` object in a store of this machine lists them.

    Empty where no store here has it: then nothing can be said about where data/ comes from.
    """
    for store in object_stores(root):
        file = store / "files" / "md5" / md5[:2] / md5[2:]
        if md5 and file.is_file():
            return {entry["relpath"]: entry["md5"] for entry in json.loads(file.read_bytes())}
    return {}


def object_stores(root: Path) -> Iterator[Path]:
    """DVC's cache and every remote that is a folder on this machine."""
    config = configparser.ConfigParser(interpolation=None)
    config.read([root / ".dvc" / "config", root / ".dvc" / "config.local"], encoding="utf-8")
    folder = (root / ".dvc").resolve()
    yield folder / (config.get("cache", "dir", fallback="cache") if config.has_section("cache") else "cache")
    for section in config.sections():
        url = config.get(section, "url", fallback="") if "remote" in section else ""
        if url and "://" not in url:
            yield (folder / url).resolve()


def read_records(root: Path, stage: str) -> Iterator[Stored]:
    """The stage's records, the newest first."""
    found = []
    for path in sorted((root / RECORDS / stage).glob("*.json")):
        raw = path.read_bytes()
        try:
            content = json.loads(raw)
        except ValueError:
            content = {}
        whole = isinstance(content, dict) and content.keys() >= {"inputs", "outputs", "params", "times"}
        found.append(Stored(path, hashlib.sha256(raw).hexdigest(), content if whole else {}))
    yield from sorted(found, key=lambda stored: str(stored.content.get("times", {}).get("start")), reverse=True)


def record_of(root: Path, stage: Locked) -> Stored | None:
    """The newest intact record of a run that made what dvc.lock says."""
    return next((r for r in read_records(root, stage.name) if r.is_intact and r.made(stage)), None)


def producers(stages: dict[str, Locked], path: str) -> list[Locked]:
    """The stages whose outs are ``path``, hold it, or lie below it."""
    return [stage for stage in stages.values() if any(touches(out, path) for out in stage.outs)]


def ancestors(stages: dict[str, Locked], path: str) -> dict[str, Locked]:
    """Every stage behind ``path``; raises ``DataError`` when nothing makes it."""
    first = producers(stages, path)
    if not first:
        known = "\n".join(f"  {out}" for stage in stages.values() for out in stage.outs)
        raise DataError(f"{path}: no stage of dvc.lock makes it. Known:\n{known}")
    found, waiting = dict[str, Locked](), first
    while waiting:
        stage = waiting.pop()
        if stage.name not in found:
            found[stage.name] = stage
            waiting += [above for dep in stage.deps for above in producers(stages, dep)]
    return {name: stage for name, stage in stages.items() if name in found}


def normal(path: str | Path) -> str:
    """A path as dvc.yaml writes it."""
    return Path(path).as_posix()


def as_pretrained(path: str) -> str:
    """The pretraining out that a part of data/ is a copy of."""
    return path.replace(SHIPPED, SHIPPED_LEVEL, 1)


def as_shipped(path: str) -> str:
    """The part of data/ that is a copy of a pretraining out."""
    return path.replace(SHIPPED_LEVEL, SHIPPED, 1)


def touches(out: str, path: str) -> bool:
    """Whether one is, or holds, the other."""
    return out == path or path.startswith(f"{out}/") or out.startswith(f"{path}/")


def _locked(name: str, body: dict[str, Any]) -> Locked:
    params: dict[str, Any] = {}
    for values in (body.get("params") or {}).values():
        params |= values
    deps, outs = ({normal(e["path"]): str(e.get("md5", "")) for e in body.get(k) or []} for k in ("deps", "outs"))
    return Locked(name, body.get("cmd", ""), deps, outs, params)


def _yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not valid YAML ({error}); restore it with `git checkout -- {path.name}`") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: holds no mapping; restore it with `git checkout -- {path.name}`")
    return content
