"""Read the publications of runs in a remote: a log of manifests, records with signed statements, signatures of the log.

``publication`` writes it; here it is verified for remotes that are folders on this machine. In ``<remote>/<name>/``,
``log/<number>.json`` names a manifest and the entry before it, and ``signatures/<sha256>.dsse`` signs the entry with
that sha256; ``signatures/<sha256>.<key>.void.dsse`` declares an unsigned entry void. The other files are
``manifests/<sha256>.json``, ``locks/<sha256>.lock`` (the run's lock), ``records/<stage>/<sha256>.json``, ``.dsse``
and ``.sig``, ``patches/<sha256>.patch`` and ``keys/<sha256>.pem``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, RootModel

from evidence.audit.findings import Finding
from evidence.audit.objects import Objects
from evidence.audit.records import statement_digest, verified
from evidence.audit.trust import Keys, RefusedKeyError, moment_of
from evidence.dvc.history import MAIN_LOCK, Locked
from evidence.dvc.stores import FOLDER, Store
from evidence.record.ledger import LEDGER, RECORDS, SIGNED, Link, following, head_of, read_ledger
from evidence.record.reading import Record, read_record
from evidence.record.signing import key_id, opened, sign
from evidence.settings import SETTINGS, STATE, VENDOR, Count, Form, Md5, Sha256, parsed
from ground.io import DataError, parse_json, sha256_file, sha256_of, write_json

SENT = STATE / "sent.json"
"""The sha256 of the lock that this machine last published, by address."""
SEEN = STATE / "seen.json"
"""The newest entry of a log that this machine has seen, by address."""
ENTRY_TYPE = f"application/vnd.{VENDOR}.log-entry+json"
VOIDED = f"if it was made by mistake, whoever has a trusted key declares it void: `{SETTINGS.command} void NUMBER`"
VOID_TYPE = f"application/vnd.{VENDOR}.void-log-entry+json"


class LogEntry(Link):
    """One entry of the log, which names a manifest."""

    manifest: Sha256


class SeenEntry(Form):
    """A number in the log and the sha256 of the entry there."""

    number: Count
    entry: Sha256


class PublishedOut(Form):
    """One out in a manifest; ``sha256`` is from the record."""

    md5: Md5
    size: Count | None
    stage: str
    sha256: Sha256 | None = None


class Manifest(Form):
    """The publication of one run: the digest of its lock, its outs, records and statements by stage, the code's state.

    ``patch`` is the sha256 of the uncommitted changes of tracked files, ``key`` the name of the key that signed the
    entry, ``branch`` ``None`` for a commit without one. A ``partial`` run names only its own stages, in a separate
    lock. A lock has the parameters. Schema 3 named neither branch nor profile.
    """

    schema_: Annotated[int, Field(alias="schema", ge=3, le=4)]
    dvc_lock: Sha256
    outs: dict[str, PublishedOut]
    partial: bool = False
    records: dict[str, Sha256] = Field(default_factory=dict)
    statements: dict[str, Sha256] = Field(default_factory=dict)
    commit: str | None = None
    tree: str | None = None
    branch: str | None = None
    profile: str | None = None
    patch: Sha256 | None = None
    key: Sha256 | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A verified entry of the log: its number, its sha256, its manifest and the trusted keys that signed it."""

    number: int
    digest: str
    manifest: Manifest
    signers: list[str]


class Published:
    """The evidence in one remote.

    ``chain`` reads it; then ``entries`` are the entries whose chain and manifest are sound, and ``records`` the records
    that they name, by stage and sha256. ``void`` are the manifests of unsigned entries that a trusted key declared
    void, and ``digests`` the sha256 of each entry by its number.
    """

    def __init__(self, root: Path, objects: Objects, keys: Keys) -> None:
        self.root, self.objects, self.keys = root, objects, keys
        self.has_objects = objects.store.folder is not None  # otherwise this is a copy of the evidence only
        self.folder = objects.folder / FOLDER
        self.records: dict[str, dict[str, Record]] = {}
        self._manifests = {path.stem: path for path in sorted(self.folder.glob("manifests/[!.]*.json"))}
        self.entries: list[Entry] = []
        self.void: list[Manifest] = []
        self.digests: dict[int, str] = {}
        self._read: set[tuple[str, str, str | None]] = set()
        try:
            ledger = read_ledger(root) or ()
            self._ledger: dict[tuple[str, str], str | None] | None = {(e.stage, e.record): e.statement for e in ledger}
            self._end = head_of((root / LEDGER).read_bytes().splitlines(keepends=True) if ledger else ())
        except DataError:  # ``tampered_records`` names the broken link
            self._ledger = None

    def chain(self) -> Iterator[Finding]:
        """Verify every entry of the log with its signature, manifest, records, lock and patch."""
        used: set[str] = set()
        previous = None
        for number, path in enumerate(sorted(self.folder.glob("log/[!.]*.json")), start=1):
            where = self.objects.name(path)
            raw = path.read_bytes()
            if path.stem != f"{number:08d}":
                yield Finding(where, "the chain is broken: an entry before it was removed or renamed")
                return
            try:
                entry = following(LogEntry, raw, where, number, previous)
            except DataError as error:
                yield Finding.of(error, where)
                return
            used.add(entry.manifest)
            previous = self.digests[number] = sha256_of(raw)
            try:
                yield from self._entry(entry, raw, where)
            except DataError as error:
                yield Finding.of(error)
        for digest in (each for each in self._manifests if each not in used):
            message = "no entry of the log names it; the log was cut, or a run ended before it wrote its entry"
            yield Finding(self.objects.name(self._manifests[digest]), message)
        yield from self._rolled_back()
        for path in sorted(self.folder.glob("keys/*.pem")):
            if key_id(path.read_bytes()) != path.stem:
                yield Finding(self.objects.name(path), "is not the public key in its name; delete it and publish again")

    def _entry(self, entry: LogEntry, raw: bytes, where: str) -> Iterator[Finding]:
        """Verify what an entry names, and its signature; raises ``DataError`` if one of the files is not readable.

        A trusted key can declare an unsigned entry void.
        """
        digest, manifest = self.digests[entry.number], self._manifest(entry.manifest, where)
        signed, voids = self.folder / f"signatures/{digest}.dsse", self.folder.glob(f"signatures/{digest}.*.void.dsse")
        for path in () if signed.is_file() else sorted(voids):
            *void, keys = opened(path.read_bytes(), self.keys, self.objects.name(path))
            if keys and void == [VOID_TYPE, raw]:
                yield Finding(where, f"entry {entry.number} is not signed; key {keys[0][:12]} declared it void", "note")
                self.void.append(manifest)
                return
        found = Entry(entry.number, digest, manifest, [])
        self.entries.append(found)
        yield from self._evidence(manifest, where)
        if signed.is_file():
            name = self.objects.name(signed)
            *content, keys = opened(signed.read_bytes(), self.keys, name)
            if content != [ENTRY_TYPE, raw]:  # a void signs the same bytes
                raise DataError(f"{name}: does not sign the entry in its name")
            found.signers.extend(keys)
            if loss := self.keys.invalid_since(keys, self._latest(manifest)):
                yield Finding(where, f"names a run that ended later than its signature can be: {loss}")
            if not keys:
                told = f"is signed by key {_short(manifest.key)}, which is not trusted here; {SETTINGS.remedies.trust}"
                yield Finding(f"{self.objects.name(self.folder)}/log", told, "note", cause=f"key {manifest.key}")
        elif manifest.key is not None:
            yield Finding(where, f"its signature by key {_short(manifest.key)} is missing; {VOIDED}")
        elif any(each.signers for each in self.entries):
            yield Finding(where, f"is not signed, although entries before it are; {VOIDED}")

    def _latest(self, manifest: Manifest) -> datetime:
        """The end of the latest run that a manifest names."""
        named = [self.records.get(stage, {}).get(digest) for stage, digest in manifest.records.items()]
        ends = [moment_of(record.content["times"]["end"]) for record in named if record]
        return max(filter(None, ends), default=datetime.min.replace(tzinfo=UTC))

    def _manifest(self, digest: str, where: str) -> Manifest:
        """The manifest that an entry names; raises ``DataError`` if it is missing or its sha256 differs."""
        if (path := self._manifests.get(digest)) is None:
            raise DataError(f"{where}: names manifest {digest[:12]}, which is missing")
        name, raw = self.objects.name(path), path.read_bytes()
        if (found := sha256_of(raw)) != digest:
            raise DataError(f"{name}: sha256 is {found}, not the one in its name; it was edited")
        return parsed(Manifest, raw, name)

    def _evidence(self, manifest: Manifest, where: str) -> Iterator[Finding]:
        """The records, the patch and the lock that a manifest names."""
        for stage, digest in manifest.records.items():
            yield from self._record(stage, digest, manifest.statements.get(stage), where)
        for kind, ending, name in (("patches", "patch", manifest.patch), ("locks", "lock", manifest.dvc_lock)):
            path = self.folder / kind / f"{name}.{ending}"
            if name and (not path.is_file() or sha256_file(path) != name):
                yield Finding(self.objects.name(path), "is missing or was edited; a manifest names it", cause=ending)

    def _record(self, stage: str, digest: str, statement: str | None, where: str) -> Iterator[Finding]:
        """A record that a manifest names, with its signatures; several manifests may name it, and it is read once."""
        if (stage, digest, statement) in self._read:
            return
        self._read.add((stage, digest, statement))
        path = self.folder / "records" / stage / f"{digest}.json"
        if not path.is_file():
            yield Finding(where, f"names record {digest[:12]} of {stage}, which is missing")
            return
        record = read_record(path, self.root)
        if record.digest != digest:
            yield Finding(self.objects.name(path), f"sha256 is {record.digest}, not the one in its name; it was edited")
        elif record.problem:
            yield Finding(self.objects.name(path), record.problem)
        else:
            self.records.setdefault(stage, {}).setdefault(digest, record)
        try:
            signers, head = verified(record, self.keys)
        except RefusedKeyError:
            pass  # ``check`` names the key
        except DataError as error:
            yield Finding(f"{self.objects.name(self.folder)}/records", str(error), cause=str(error))
        else:
            if signers and self._ledger and head == self._end and (stage, digest) not in self._ledger:
                message = (
                    f"ends before published record {digest[:12]}: it was cut, or this is an older copy of the project"
                )
                yield Finding(LEDGER.as_posix(), message, "note", (stage,))
        if statement is not None and statement_digest(path) != statement:
            signed = self.objects.name(path.with_suffix(SIGNED))
            yield Finding(signed, "was edited or deleted; a manifest names this signed statement")
        if statement is not None and (self._ledger or {}).get((stage, digest)) not in (None, statement):
            message = f"names a different signed statement of record {digest[:12]} from the manifest of {where}"
            yield Finding(LEDGER.as_posix(), message, stages=(stage,))

    def _rolled_back(self) -> Iterator[Finding]:
        """Check that the log still has the last entries that this machine published or has seen."""
        where = f"{self.objects.name(self.folder)}/log"
        store = self.objects.store
        sent, all_seen = remembered(self.root)
        for lock in (lock for address, lock in sent.items() if names_store(address, store, self.root)):
            known = [*(entry.manifest for entry in self.entries), *self.void]
            manifests = [manifest for manifest in known if manifest.dvc_lock == lock]
            if not manifests:
                message = (
                    f"does not hold the run that this machine published last ({MAIN_LOCK} {_short(lock)}): it was cut"
                )
                yield Finding(where, message, cause="cut")
            else:
                yield from self._not_entered(manifests)
        for seen in (seen for address, seen in all_seen.items() if names_store(address, store, self.root)):
            if self.digests.get(seen.number) != seen.entry:
                message = (
                    f"entry {seen.number} is not the one that this machine has seen: the log was cut or written anew"
                )
                yield Finding(where, message, cause="cut")

    def _not_entered(self, manifests: list[Manifest]) -> Iterator[Finding]:
        """Check that the ledger still names every record of at least one of the manifests."""
        if self._ledger is None:  # ``tampered_records`` names the broken link
            return
        lost = min(([name for name in m.records.items() if name not in self._ledger] for m in manifests), key=len)
        if lost:
            message = (
                f"does not name record {lost[0][1][:12]} of {lost[0][0]}, which this machine published: the ledger was "
                f"cut; restore {RECORDS} from a copy or, to accept the loss, delete {SENT}"
            )
            yield Finding(LEDGER.as_posix(), message, stages=tuple(stage for stage, _ in lost), cause="cut")

    def newest(self, locked: Mapping[str, Locked]) -> Iterator[Finding]:
        """Check that the newest manifest tells the truth about the lock, and the store has its objects."""
        if not self.entries:
            return
        manifest = self.entries[-1].manifest
        for path, out in manifest.outs.items() if self.has_objects else ():
            yield from self.objects.missing(out.md5, path, "the newest manifest")
        lock = self.root / MAIN_LOCK
        if sha256_file(lock) == manifest.dvc_lock:
            outs = {path: md5 for s in locked.values() if s.file == lock.name for path, md5 in s.outs.items()}
            stated = {path: out.md5 for path, out in manifest.outs.items()}
            if differ := {path for path in outs.keys() | stated if outs.get(path) != stated.get(path)}:
                message = (
                    f"the newest manifest differs from the {MAIN_LOCK} that it names: {', '.join(sorted(differ)[:3])}"
                )
                yield Finding(f"{self.objects.name(self.folder)}/log", message)


def signature(entry: bytes, payload_type: str = ENTRY_TYPE, ending: str = ".dsse") -> tuple[str, bytes]:
    """The key and the content of this user's signature of an entry; raises ``DataError`` as ``own_key`` does."""
    name = sha256_of(entry)
    return f"signatures/{name}{ending}", json.dumps(sign(entry, payload_type), sort_keys=True).encode()


def remembered(root: Path) -> tuple[dict[str, str], dict[str, SeenEntry]]:
    """The last publication of this machine, and the entries that it has seen, by address.

    Raises ``DataError`` if one of the two files has a different form.
    """
    sent = parsed(RootModel[dict[str, Sha256]], _content(root, SENT), SENT.as_posix()).root
    return sent, parsed(RootModel[dict[str, SeenEntry]], _content(root, SEEN), SEEN.as_posix()).root


def names_store(address: str, store: Store, root: Path) -> bool:
    """True if a remembered address names the store; folders are relative to the project."""
    folder = (root / address.removeprefix("file://")).resolve()
    return address == store.address or (store.folder is not None and folder == store.folder.resolve())


def without_store(root: Path, stores: list[Store]) -> Iterator[Finding]:
    """Notes on logs that this machine published or has seen, in remotes that DVC's configuration no longer names."""
    sent, seen = remembered(root)
    for address in sorted(sent.keys() | seen.keys()):
        if not any(names_store(address, store, root) for store in stores):
            message = f"does not name {address}, where this machine published or read a log, so that log was not read"
            yield Finding(".dvc/config", f"{message}; add the remote again", "note")


def remember(root: Path, file: Path, address: str, value: Any) -> None:
    """Add the value of an address to ``SENT`` or ``SEEN``, so that a log that was cut or written anew is found."""
    write_json(root / file, {**parse_json(_content(root, file), str(root / file)), address: value})


def _content(root: Path, file: Path) -> bytes:
    return (root / file).read_bytes() if (root / file).exists() else b"{}"


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "none"
