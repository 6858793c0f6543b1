"""The publication of a run to a remote: its evidence, and the log of manifests, which several runs may extend."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.audit.records import record_of, statement_digest
from evidence.dvc.history import MAIN_LOCK, read_lock
from evidence.dvc.stores import FOLDER
from evidence.record.environment import git, revision
from evidence.record.ledger import SIGNED
from evidence.record.model_signature import MODEL_SIGNATURE
from evidence.record.signing import key_id, own_public_keys
from evidence.remote.published import SEEN, SENT, Manifest, remember, remembered, signature
from evidence.settings import validated
from ground.io import DataError, TransientError, parse_json, sha256_file, sha256_of
from ground.remote import READ_S, Store, open_store
from ground.settings import dump_yaml, read_yaml

_COMMIT_ATTEMPTS = 20
_PROBE_S = 3600.0
"""The age in seconds from which the objects of a race are leftovers of a killed writer: no race takes that long."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of a store's log: its number from 1, and the manifest's sha256.

    ``exclusive`` is False if the store cannot create objects exclusively, so that a simultaneous writer could overwrite
    the entry.
    """

    number: int
    manifest: str
    exclusive: bool


def publish(root: Path, address: str, stages: Collection[str] | None = None, endpoint: str = "") -> Commit:
    """Append a manifest of the current lock to the log of a remote, sign the entry, and add the records.

    ``stages`` names the stages that a partial run has pushed; ``None`` for all. With log and records, anyone who has
    only the bucket can tell which objects belong together and how they were made. Raises ``DataError`` without a key.
    """
    manifest, evidence = publication(root, stages)
    store = opened(root, address, FOLDER, endpoint)
    send_evidence(store, evidence)
    commit = commit_manifest(store, manifest, signature)
    entry = store.read(f"log/{commit.number:08d}.json")
    remember(root, SEEN, address, {"number": commit.number, "entry": sha256_of(entry)})
    if stages is None:
        remember(root, SENT, address, manifest["dvc_lock"])
    return commit


def is_pending(root: Path, address: str) -> bool:
    """True if the lock has changed since all its outs were last pushed to ``address``."""
    lock = root / MAIN_LOCK
    return lock.exists() and remembered(root)[0].get(address) != sha256_file(lock)


def absolute(root: Path, address: str) -> str:
    """The address of a remote; the path of a folder, which may be relative to ``root``, becomes absolute."""
    return address if "://" in address else str((root / address).absolute())


def opened(root: Path, address: str, folder: str = "", endpoint: str = "", read_s: float = READ_S) -> Store:
    """The store at the address of a remote, or at a folder in it, as ``open_store`` opens it."""
    base = absolute(root, address)
    return open_store(f"{base.rstrip('/')}/{folder}" if folder else base, endpoint, read_s)


def send_evidence(store: Store, evidence: Mapping[str, bytes]) -> None:
    """Send the evidence that the store does not have yet, by key; the name of a file determines its content."""
    known = {key for kind in sorted({key.partition("/")[0] for key in evidence}) for key in store.keys(f"{kind}/")}
    for key, content in evidence.items():
        if key not in known:
            store.put(key, content)


def publication(root: Path, stages: Collection[str] | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest of the current lock as a JSON value, and the content of the evidence files by key.

    ``stages`` are the stages that a partial run has pushed; ``None`` for all, with the records of the pipelines that
    made shipped data. ``published`` describes keys and forms.
    Raises ``DataError`` if the lock cannot be read, if git cannot name the uncommitted changes, or if this user has no
    key that can sign the manifest.
    """
    outs: dict[str, Any] = {}
    records: dict[str, str] = {}
    statements: dict[str, str] = {}
    evidence: dict[str, bytes] = {}
    for name, stage in read_lock(root).items():
        if not stage.cmd or (stages is not None and name not in stages):
            continue
        record = record_of(root, stage)
        for path, md5 in stage.outs.items() if stage.file == MAIN_LOCK else ():  # no remote has the earlier outs
            sha256 = record.content["outputs"][path]["sha256"] if record else None
            outs[path] = {"md5": md5, "size": stage.about(path).size, "stage": name, "sha256": sha256}
        if record is not None:
            records[name] = record.digest
            if (signed := statement_digest(record.path)) is not None:
                statements[name] = signed
            for file in (record.path, *(record.path.with_suffix(ending) for ending in (SIGNED, MODEL_SIGNATURE))):
                if file.is_file():
                    evidence[f"records/{name}/{file.name}"] = file.read_bytes()
    commit = revision("HEAD", root)
    changes = git("diff", "--binary", "HEAD", root=root)
    if commit and changes is None:
        raise DataError(f"{root}: `git diff HEAD` fails, so uncommitted changes are unknown; correct what it names")
    patch = (changes or "").encode("utf-8", "surrogateescape")
    if patch:
        evidence[f"patches/{sha256_of(patch)}.patch"] = patch
    branch = git("symbolic-ref", "--quiet", "--short", "HEAD", root=root)
    profile = read_yaml(params).get("profile") if (params := root / "params.yaml").exists() else None
    keys = own_public_keys()
    evidence |= {f"keys/{key_id(key)}.pem": key for key in keys}
    lock = _lock(root, stages)
    evidence[f"locks/{sha256_of(lock)}.lock"] = lock
    manifest = {
        "schema": 4,
        "dvc_lock": sha256_of(lock),
        "partial": stages is not None,
        "outs": outs,
        "records": records,
        "statements": statements,
        "commit": commit,
        "tree": revision("HEAD^{tree}", root),
        "branch": branch.strip() if branch else None,
        "profile": profile if isinstance(profile, str) else None,
        "patch": sha256_of(patch) if patch else None,
        "key": key_id(keys[0]),
    }
    validated(Manifest, manifest, "manifest")  # an entry of the log stays for ever
    return manifest, evidence


def _lock(root: Path, stages: Collection[str] | None) -> bytes:
    """The lock, or one with only these stages."""
    if stages is None:
        return (root / MAIN_LOCK).read_bytes()
    content = read_yaml(root / MAIN_LOCK)
    kept = {name: entry for name, entry in content["stages"].items() if name in stages}
    return dump_yaml(content | {"stages": kept}).encode()


def creates_exclusively(store: Store, rounds: int = 4, writers: int = 6) -> bool:
    """Let ``writers`` create the same key at once, ``rounds`` times: True if exactly one succeeds in every round.

    Some servers accept ``If-None-Match`` but ignore it, or let several writers succeed. Only a race reveals that.
    """
    store.sweep("probe/", time.time() - _PROBE_S)
    with ThreadPoolExecutor(writers) as pool:
        for _ in range(rounds):
            key = f"probe/{uuid.uuid4().hex}"
            try:
                wins = list(pool.map(lambda number, key=key: store.create(key, b"%d" % number), range(writers)))
            finally:
                store.delete(key)
            if sum(wins) != 1:
                return False
    return True


def commit_manifest(store: Store, manifest: Any, sign: Callable[[bytes], tuple[str, bytes]] | None = None) -> Commit:
    """Store ``manifest`` under its sha256 and append it to the store's log, unless it is the newest entry already.

    ``manifests/<sha256>.json`` holds the content; ``log/<number>.json`` names it and the previous entry. A store that
    ``creates_exclusively`` serialises the writers; in any other store the entry is read back, to notice a simultaneous
    writer. ``sign`` gives the key and the content of the signature of an entry's bytes, which is in the store before
    the entry: a killed writer leaves no entry without a signature. Raises ``TransientError`` if other writers keep
    coming first.
    """
    content = _canonical(manifest)
    digest = sha256_of(content)
    store.put(f"manifests/{digest}.json", content)
    exclusive = creates_exclusively(store)
    for _ in range(_COMMIT_ATTEMPTS):
        number, newest, before = newest_entry(store)
        if newest == digest:
            if sign is not None:
                store.put(*sign(before))  # it may have been lost
            return Commit(number, digest, exclusive)
        previous = sha256_of(before) if before else None
        entry = _canonical({"number": number + 1, "manifest": digest, "previous": previous})
        key = f"log/{number + 1:08d}.json"
        if sign is not None:
            store.put(*sign(entry))
        if store.create(key, entry) and store.read(key) == entry:
            return Commit(number + 1, digest, exclusive)
    raise TransientError(f"{store.url}: {_COMMIT_ATTEMPTS} other writers came first; run the same command again")


def newest_entry(store: Store) -> tuple[int, str, bytes]:
    """Number, manifest and bytes of the newest entry of a store's log; 0 and nothing if it has none.

    Raises ``DataError`` if the newest object of the log is not an entry.
    """
    if not (keys := store.keys("log/")):
        return 0, "", b""
    content = store.read(keys[-1])
    name = f"{store.url}/{keys[-1]}"
    entry, stem = parse_json(content, name), Path(keys[-1]).stem
    manifest = entry.get("manifest") if isinstance(entry, dict) else None
    if not (stem.isdecimal() and isinstance(manifest, str)):
        raise DataError(f"{name}: not an entry of the log; remove the object, or restore it from a copy of the remote")
    return int(stem), manifest, content


def _canonical(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode()
