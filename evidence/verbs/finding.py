"""``lineage find``: where bytes occur: in outs and inputs of every commit, in records, in stores and in git."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evidence.dvc import history
from evidence.dvc.history import Locked, LockFile, locked_stage
from evidence.dvc.stores import object_file, read_listing, stores
from evidence.forms import validated
from evidence.record.environment import git
from evidence.record.ledger import RECORDS
from evidence.record.reading import Record, known_records
from evidence.verbs.revision import read_at
from ground.hashing import digest_path
from ground.io import DataError
from ground.settings import parse_yaml

Stages = Mapping[str, Locked]
_PREFIX = re.compile(r"[0-9a-f]{6,64}(\.dir)?")


@dataclass(frozen=True, slots=True)
class Place:
    """A place that names the bytes: ``kind`` is record, lock, store or git; ``role`` is output, input, code …"""

    kind: str
    where: str
    stage: str | None
    role: str
    path: str


def find(text: str, root: Path) -> dict[str, Any]:
    """The digests that were looked for and every place that names them.

    ``text`` is a file or folder anywhere, or the beginning of an md5 or a sha256 (at least 6 digits). Raises
    ``DataError`` if it is neither.
    """
    path = Path(text)
    if path.exists():
        digest = digest_path(path)
        wanted = {digest.md5, digest.sha256}
        tracked = list(_in_git(path, root)) if path.is_file() else []
    elif _PREFIX.fullmatch(text):
        wanted, tracked = {text}, []
    else:
        raise DataError(f"{text}: no such file, and not the beginning of a digest (at least 6 of 0-9 and a-f)")
    stages = history.read_lock(root)
    records = [record for name in _names(root, stages) for record in known_records(root, name, wanted)]
    wanted |= {other for record in records for other in _same_bytes(record, wanted)}
    places = [place for record in records for place in _in_record(record, wanted)]
    places += [*_in_locks(root, stages, wanted), *_in_stores(root, stages, wanted), *tracked]
    return {"digests": sorted(wanted), "places": [asdict(place) for place in places]}


def _names(root: Path, stages: Stages) -> list[str]:
    """The names of the stages that may have records."""
    recorded = {path.name for path in (root / RECORDS).glob("*") if path.is_dir()}
    return sorted(recorded | {name for name, stage in stages.items() if stage.cmd})


def _entries(record: Record) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Role, path and digests of everything that a record names."""
    for kind in ("outputs", "inputs", "rooms", "code"):
        for path, entry in record.content.get(kind, {}).items():
            yield kind, path, entry
            for name, inner in (entry.get("files") or {}).items():
                yield kind, f"{path}/{name}", inner


def _matches(digest: str | None, wanted: set[str]) -> bool:
    return digest is not None and any(digest.startswith(one) for one in wanted)


def _same_bytes(record: Record, wanted: set[str]) -> Iterator[str]:
    """The other digest of files that have a wanted one."""
    for _, _, entry in _entries(record):
        if _matches(entry["md5"], wanted) or _matches(entry["sha256"], wanted):
            yield from (entry["md5"], entry["sha256"])


def _in_record(record: Record, wanted: set[str]) -> Iterator[Place]:
    name, stage = record.digest[:16], record.path.parent.name
    if _matches(record.digest, wanted):
        yield Place("record", name, stage, "the record itself", record.path.name)
    for kind, path, entry in _entries(record):
        if _matches(entry["md5"], wanted) or _matches(entry["sha256"], wanted):
            yield Place("record", name, stage, kind.removesuffix("s"), path)


def _in_locks(root: Path, stages: Stages, wanted: set[str]) -> Iterator[Place]:
    """The outs and inputs in the current lock and in the locks of every commit; equal locks are read once."""
    yield from _in_stages(stages.values(), "now", wanted)
    log = git("log", "--format=%H", "--", history.MAIN_LOCK, root=root) or ""
    seen: set[bytes] = {(root / history.MAIN_LOCK).read_bytes()}
    for commit in log.split():
        content = read_at(root, commit, [history.MAIN_LOCK]).get(history.MAIN_LOCK, b"")
        if content in seen or not any(one.removesuffix(".dir").encode() in content for one in wanted):
            continue
        seen.add(content)
        lock = validated(LockFile, parse_yaml(content.decode()), f"{commit[:12]}:{history.MAIN_LOCK}")
        older = [locked_stage(name, entry, history.MAIN_LOCK) for name, entry in (lock.stages or {}).items()]
        yield from _in_stages(older, commit[:12], wanted)


def _in_stages(stages: Iterable[Locked], where: str, wanted: set[str]) -> Iterator[Place]:
    for stage in stages:
        for role, files in (("output", stage.outs), ("input", stage.deps)):
            for path, md5 in files.items():
                if md5 and _matches(md5, wanted):
                    yield Place("lock", where, stage.name, role, path)


def _in_stores(root: Path, stages: Stages, wanted: set[str]) -> Iterator[Place]:
    """Objects of the cache and of remotes on this machine, and the folders of the current lock that contain them."""
    digests = {one.removesuffix(".dir") for one in wanted if len(one.removesuffix(".dir")) <= 32}
    outs = {md5: path for stage in stages.values() for path, md5 in stage.outs.items()}
    for store in stores(root):
        if store.folder is None:
            continue
        for start in digests:
            for file in sorted(object_file(store.folder, start).parent.glob(f"{start[2:]}*")):
                yield Place("store", store.name, None, "object", f"{file.parent.name}{file.name}")
        for md5, out in outs.items():
            file = object_file(store.folder, md5)
            for name, inner in (read_listing(file) if md5.endswith(".dir") and file.is_file() else {}).items():
                if _matches(inner, wanted):
                    yield Place("store", store.name, None, "file of a folder", f"{out}/{name}")


def _in_git(path: Path, root: Path) -> Iterator[Place]:
    """The newest commit that added or removed a file with these bytes."""
    digest = git("hash-object", "--", str(path.resolve()), root=root)
    if digest is None or git("cat-file", "-e", digest.strip(), root=root) is None:
        return
    found = git("log", "--all", "-1", "--format=%H", "--name-only", f"--find-object={digest.strip()}", root=root) or ""
    commit, *names = found.split("\n\n", 1)
    for name in "".join(names).splitlines():
        yield Place("git", commit[:12], None, "tracked file", name)
