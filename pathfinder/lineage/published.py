"""What runs published to a remote: a log of manifests, records with signed statements, and signatures of the log.

Written by ``flows.storage``, verified here for remotes that are folders on this machine. In ``<remote>/pathfinder/``,
``log/<number>.json`` names a manifest and the entry before it, and ``signatures/<sha256>.dsse`` signs the entry with
that sha256. The others are ``manifests/<sha256>.json``, ``records/<stage>/<sha256>.json`` and ``.dsse``,
``patches/<sha256>.patch`` and ``keys/<sha256>.pem``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pathfinder.core.io import DataError, parse_json, sha256_file
from pathfinder.lineage.findings import Finding
from pathfinder.lineage.history import Locked, Record, read_record
from pathfinder.lineage.objects import Objects
from pathfinder.lineage.stores import stores
from pathfinder.provenance.schema import Count, Form, Md5, Sha256, parsed
from pathfinder.provenance.signing import Envelope, verify
from pathfinder.sources.remote import open_store

SENT = Path(".pathfinder/sent.json")
"""The sha256 of the dvc.lock that this machine last published, by address."""
SEEN = Path(".pathfinder/seen.json")
"""The newest entry of a log that this machine has seen, by address."""
FOLDER = "pathfinder"
EVIDENCE = Path(".pathfinder/evidence")
"""Copies of what remotes on other machines published, by the name of the remote."""
_KINDS = ("log", "manifests", "signatures", "records", "patches", "keys")
ENTRY_TYPE = "application/vnd.pathfinder-prm.log-entry+json"


class LogEntry(Form):
    """One entry of the log: its number from 1, a manifest, and the digest of the entry before it."""

    manifest: Sha256
    number: Count
    previous: Sha256 | None


class SeenEntry(Form):
    """A number in the log and the sha256 of the entry there."""

    number: Count
    entry: Sha256


class PublishedOut(Form):
    """One out in a manifest; ``sha256`` is that of the record."""

    md5: Md5
    size: Count | None
    stage: str
    sha256: Sha256 | None = None


class Manifest(Form):
    """What one run published: the digest of its dvc.lock, all its outs, records by stage, and the code's state.

    ``patch`` is the sha256 of the uncommitted changes of tracked files, ``key`` the name of the key that signed the
    entry. Schema 1 had neither records nor code.
    """

    schema_: Annotated[int, Field(alias="schema", ge=1, le=2)]
    dvc_lock: Sha256
    outs: dict[str, PublishedOut]
    records: dict[str, Sha256] = Field(default_factory=dict)
    commit: str | None = None
    tree: str | None = None
    patch: Sha256 | None = None
    key: Sha256 | None = None


class Published:
    """The evidence in one remote; ``findings`` reads it, then ``records`` are those that a verified manifest names."""

    def __init__(self, root: Path, objects: Objects, keys: Mapping[str, bytes]) -> None:
        self.root, self.objects, self.keys = root, objects, keys
        self.has_objects = objects.store.folder is not None  # otherwise this is a copy of the evidence only
        self.folder = objects.folder / FOLDER
        self.records: dict[str, list[Record]] = {}
        self._manifests = {path.stem: path for path in sorted(self.folder.glob("manifests/*.json"))}
        self._entries: dict[int, str] = {}
        self._named: list[Manifest] = []

    def findings(self, locked: Mapping[str, Locked]) -> Iterator[Finding]:
        """Verify the chain, every signature, manifest and record, and the presence of what the newest entry names."""
        used: set[str] = set()
        previous = None
        for number, path in enumerate(sorted(self.folder.glob("log/*.json")), start=1):
            where = self.objects.name(path)
            raw = path.read_bytes()
            try:
                entry = parsed(LogEntry, raw, where)
            except DataError as error:
                yield _broken(where, error)
                return
            if (path.stem, entry.number, entry.previous) != (f"{number:08d}", number, previous):
                message = (
                    f"the chain is broken: it has number {entry.number} and previous {_short(entry.previous)}, "
                    f"expected {number} and {_short(previous)}; an entry was edited, removed or moved"
                )
                yield Finding(where, message)
                return
            used.add(entry.manifest)
            previous = self._entries[number] = hashlib.sha256(raw).hexdigest()
            manifest = yield from self._manifest(entry.manifest, where)
            if manifest is not None:
                self._named.append(manifest)
                yield from self._signature(raw, previous, manifest, where)
                yield from self._evidence(manifest, where)
        for digest in self._manifests.keys() - used:
            message = "no entry of the log names it; the log was cut, or a run ended before it wrote its entry"
            yield Finding(self.objects.name(self._manifests[digest]), message)
        yield from self._rolled_back()
        yield from self._newest(locked)

    def _manifest(self, digest: str, where: str) -> Generator[Finding, None, Manifest | None]:
        """The manifest that an entry names, if it is as its name says."""
        path = self._manifests.get(digest)
        if path is None:
            yield Finding(where, f"names manifest {digest[:12]}, which is missing")
            return None
        raw = path.read_bytes()
        if (found := hashlib.sha256(raw).hexdigest()) != digest:
            yield Finding(self.objects.name(path), f"sha256 is {found}, not the one in its name; it was edited")
            return None
        try:
            return parsed(Manifest, raw, self.objects.name(path))
        except DataError as error:
            yield _broken(self.objects.name(path), error)
            return None

    def _signature(self, entry: bytes, digest: str, manifest: Manifest, where: str) -> Iterator[Finding]:
        """Verify who signed an entry; the manifest says whether there must be a signature."""
        path = self.folder / "signatures" / f"{digest}.dsse"
        if not path.is_file():
            if manifest.key is not None:
                yield Finding(where, f"its signature by key {_short(manifest.key)} is missing")
            return
        try:
            payload, signers = verify(parsed(Envelope, path.read_bytes(), where), self.keys, where)
        except DataError as error:
            yield _broken(self.objects.name(path), error)
            return
        if payload != entry:
            yield Finding(self.objects.name(path), "signs another entry than the one in its name")
        elif not signers:
            message = f"is signed by key {_short(manifest.key)}, which is not trusted here; see docs/audit.md"
            yield Finding(f"{self.objects.name(self.folder)}/log", message, "note", cause=f"key {manifest.key}")

    def _evidence(self, manifest: Manifest, where: str) -> Iterator[Finding]:
        """The records and the patch that a manifest names."""
        for stage, digest in manifest.records.items():
            path = self.folder / "records" / stage / f"{digest}.json"
            if not path.is_file():
                yield Finding(where, f"names record {digest[:12]} of {stage}, which is missing")
                continue
            record = read_record(path, self.root)
            if record.digest != digest:
                message = f"sha256 is {record.digest}, not the one in its name; it was edited"
                yield Finding(self.objects.name(path), message)
            elif record.problem:
                yield Finding(self.objects.name(path), record.problem)
            elif all(record.digest != other.digest for other in self.records.setdefault(stage, [])):
                self.records[stage].append(record)
        if manifest.patch is not None:
            path = self.folder / "patches" / f"{manifest.patch}.patch"
            if not path.is_file() or sha256_file(path) != manifest.patch:
                yield Finding(self.objects.name(path), "is missing or was edited; a manifest names it", cause="patch")

    def _rolled_back(self) -> Iterator[Finding]:
        """Whether the log still has what this machine published last and what it has seen."""
        where = f"{self.objects.name(self.folder)}/log"
        published = {manifest.dvc_lock for manifest in self._named}
        for lock in self._remembered(SENT):
            if lock not in published:
                message = (
                    f"does not hold the run that this machine published last (dvc.lock {_short(str(lock))}): it was cut"
                )
                yield Finding(where, message, cause="cut")
        for value in self._remembered(SEEN):
            seen = SeenEntry.model_validate(value)
            if self._entries.get(seen.number) != seen.entry:
                message = (
                    f"entry {seen.number} is not the one that this machine has seen: the log was cut or written anew"
                )
                yield Finding(where, message, cause="cut")

    def _remembered(self, file: Path) -> list[object]:
        """The values of this remote in a file of values by address."""
        if not (self.root / file).exists():
            return []
        content = dict(parse_json((self.root / file).read_bytes(), file.as_posix()))
        return [
            value
            for address, value in content.items()
            if str(address) == self.objects.store.address
            or (self.root / str(address).removeprefix("file://")).resolve() == self.objects.folder.resolve()
        ]

    def _newest(self, locked: Mapping[str, Locked]) -> Iterator[Finding]:
        """Whether the newest manifest tells the truth about dvc.lock, and the store has its objects."""
        if not self._named:
            return
        manifest = self._named[-1]
        for path, out in manifest.outs.items() if self.has_objects else ():
            yield from self.objects.missing(out.md5, path, "the newest manifest")
        lock = self.root / "dvc.lock"
        if sha256_file(lock) == manifest.dvc_lock:
            outs = {path: md5 for s in locked.values() if s.file == lock.name for path, md5 in s.outs.items()}
            stated = {path: out.md5 for path, out in manifest.outs.items()}
            if differ := {path for path in outs.keys() | stated if outs.get(path) != stated.get(path)}:
                message = (
                    f"the newest manifest differs from the dvc.lock that it names: {', '.join(sorted(differ)[:3])}"
                )
                yield Finding(f"{self.objects.name(self.folder)}/log", message)


def fetch(root: Path) -> list[str]:
    """Copy what the remotes on other machines published to ``.pathfinder/evidence``; returns one line per remote.

    Raises ``DataError`` if a log no longer has an entry that was fetched earlier, and ``DataError`` or
    ``TransientError`` as the store does.
    """
    lines = []
    for remote in (each for each in stores(root) if each.folder is None):
        store, folder = open_store(f"{remote.address.rstrip('/')}/{FOLDER}"), root / EVIDENCE / remote.name / FOLDER
        keys = [key for kind in _KINDS for key in store.keys(f"{kind}/")]
        for path in sorted(folder.glob("log/*.json")):
            if (key := f"log/{path.name}") not in keys or store.read(key) != path.read_bytes():
                raise DataError(
                    f"{store.url}/{key}: is not the entry that was fetched earlier: the log was cut or edited"
                )
        new = [key for key in keys if not (folder / key).exists()]
        for key in new:
            if not (folder / key).resolve().is_relative_to(folder.resolve()):
                raise DataError(f"{store.url}/{key}: leaves the folder of the evidence; the remote was tampered with")
            store.fetch(key, folder / key)
        lines.append(f"{remote.name}: {len(new)} of {len(keys)} files fetched from {remote.address}")
    return lines


def _broken(where: str, error: DataError) -> Finding:
    return Finding(where, str(error).removeprefix(f"{where}: "))


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "none"
