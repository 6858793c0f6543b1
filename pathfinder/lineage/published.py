"""The log of manifests in a remote that is a folder here, verified entry by entry (``sources.remote`` writes it)."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pathfinder.core.io import DataError, parse_json, sha256_file
from pathfinder.lineage.findings import Finding
from pathfinder.lineage.history import Locked
from pathfinder.lineage.objects import Objects
from pathfinder.provenance.schema import Count, Form, Md5, Sha256, parsed

SENT = Path(".pathfinder/sent.json")
"""The sha256 of the dvc.lock that this machine last published, by address."""


class LogEntry(Form):
    """One entry of the log: its number from 1, a manifest, and the digest of the entry before it."""

    manifest: Sha256
    number: Count
    previous: Sha256 | None


class PublishedOut(Form):
    """One out in a manifest."""

    md5: Md5
    size: Count | None
    stage: str


class Manifest(Form):
    """What one run published: the digest of its dvc.lock and all its outs."""

    schema_: Annotated[int, Field(alias="schema", ge=1, le=1)]
    dvc_lock: Sha256
    outs: dict[str, PublishedOut]


def check_log(root: Path, objects: Objects, locked: Mapping[str, Locked]) -> Iterator[Finding]:
    """Verify the chain, every manifest, and that the store has every object of the newest one."""
    folder = objects.folder / "pathfinder"
    manifests = {path.stem: path for path in sorted(folder.glob("manifests/*.json"))}
    named: list[Manifest] = []
    used: set[str] = set()
    previous = None
    for number, path in enumerate(sorted(folder.glob("log/*.json")), start=1):
        where = objects.name(path)
        raw = path.read_bytes()
        try:
            entry = parsed(LogEntry, raw, where)
        except DataError as error:
            yield _broken(where, error)
            return
        if (path.stem, entry.number, entry.previous) != (f"{number:08d}", number, previous):
            message = (
                f"the chain is broken: it has number {entry.number} and previous {_short(entry.previous)}, expected "
            )
            yield Finding(where, f"{message}{number} and {_short(previous)}; an entry was edited, removed or moved")
            return
        used.add(entry.manifest)
        found = yield from _manifest(manifests.get(entry.manifest), entry.manifest, where, objects)
        named += [found] if found else []
        previous = hashlib.sha256(raw).hexdigest()
    for digest in manifests.keys() - used:
        message = "no entry of the log names it; the log was cut, or a run ended before it wrote its entry"
        yield Finding(objects.name(manifests[digest]), message)
    yield from _rolled_back(root, objects, {manifest.dvc_lock for manifest in named}, folder)
    yield from _newest(root, objects, named, locked)


def _manifest(
    path: Path | None, digest: str, where: str, objects: Objects
) -> Generator[Finding, None, Manifest | None]:
    """The manifest that an entry names, if it is as its name says."""
    if path is None:
        yield Finding(where, f"names manifest {digest[:12]}, which is missing")
        return None
    raw = path.read_bytes()
    if (found := hashlib.sha256(raw).hexdigest()) != digest:
        yield Finding(objects.name(path), f"sha256 is {found}, not the one in its name; it was edited")
        return None
    try:
        return parsed(Manifest, raw, objects.name(path))
    except DataError as error:
        yield _broken(objects.name(path), error)
        return None


def _rolled_back(root: Path, objects: Objects, published: set[str], folder: Path) -> Iterator[Finding]:
    """Whether the log still has the run that this machine published last."""
    if not (root / SENT).exists():
        return
    for address, lock in dict(parse_json((root / SENT).read_bytes(), SENT.as_posix())).items():
        place = Path(str(address).removeprefix("file://"))
        if (root / place).resolve() == objects.folder.resolve() and lock not in published:
            message = f"does not hold the run that this machine published last (dvc.lock {_short(lock)}): it was cut"
            yield Finding(f"{objects.name(folder)}/log", message)


def _newest(root: Path, objects: Objects, named: list[Manifest], locked: Mapping[str, Locked]) -> Iterator[Finding]:
    """Whether the newest manifest tells the truth about dvc.lock, and the store has its objects."""
    if not named:
        return
    manifest = named[-1]
    for path, out in manifest.outs.items():
        yield from objects.missing(out.md5, path, "the newest manifest")
    lock = root / "dvc.lock"
    if sha256_file(lock) == manifest.dvc_lock:
        outs = {path: md5 for s in locked.values() if s.file == lock.name for path, md5 in s.outs.items()}
        stated = {path: out.md5 for path, out in manifest.outs.items()}
        if differ := {path for path in outs.keys() | stated if outs.get(path) != stated.get(path)}:
            message = f"the newest manifest differs from the dvc.lock that it names: {', '.join(sorted(differ)[:3])}"
            yield Finding(f"{objects.name(objects.folder / 'pathfinder')}/log", message)


def _broken(where: str, error: DataError) -> Finding:
    return Finding(where, str(error).removeprefix(f"{where}: "))


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "none"
