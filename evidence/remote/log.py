"""A log of manifests in a store, which several runs may extend at the same time."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ground.io import DataError, TransientError, parse_json
from ground.remote import Store

_COMMIT_ATTEMPTS = 20
_PROBE_S = 3600.0
"""The age in seconds at which the objects of a race are leftovers of a killed writer: no race takes so long."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of a store's log: its number from 1, and the manifest's sha256.

    ``exclusive`` is False if the store cannot create objects exclusively, so that a simultaneous writer could overwrite
    the entry.
    """

    number: int
    manifest: str
    exclusive: bool


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
    the entry: a writer that is killed leaves none without it. Raises ``TransientError`` if other writers keep coming
    first.
    """
    content = _canonical(manifest)
    digest = hashlib.sha256(content).hexdigest()
    store.put(f"manifests/{digest}.json", content)
    exclusive = creates_exclusively(store)
    for _ in range(_COMMIT_ATTEMPTS):
        number, newest, before = newest_entry(store)
        if newest == digest:
            if sign is not None:
                store.put(*sign(before))  # it may have been lost
            return Commit(number, digest, exclusive)
        previous = hashlib.sha256(before).hexdigest() if before else None
        entry = _canonical({"number": number + 1, "manifest": digest, "previous": previous})
        key = f"log/{number + 1:08d}.json"
        if sign is not None:
            store.put(*sign(entry))
        if store.create(key, entry) and store.read(key) == entry:
            return Commit(number + 1, digest, exclusive)
    raise TransientError(f"{store.url}: {_COMMIT_ATTEMPTS} other writers came first; run the same command again")


def newest_entry(store: Store) -> tuple[int, str, bytes]:
    """Number, manifest and bytes of the newest entry of a store's log; 0 and nothing if it has none.

    Raises ``DataError`` if the newest object of the log is no entry.
    """
    if not (keys := store.keys("log/")):
        return 0, "", b""
    content = store.read(keys[-1])
    name = f"{store.url}/{keys[-1]}"
    entry, stem = parse_json(content, name), Path(keys[-1]).stem
    manifest = entry.get("manifest") if isinstance(entry, dict) else None
    if not (stem.isdecimal() and isinstance(manifest, str)):
        raise DataError(f"{name}: no entry of the log; remove the object, or restore it from a copy of the remote")
    return int(stem), manifest, content


def _canonical(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode()
