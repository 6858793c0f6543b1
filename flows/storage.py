"""The ``storage`` remote of DVC: a local folder, or the place that the environment names.

``PATHFINDER_REMOTE=s3://bucket/prefix`` (or a folder) and, for servers other than AWS, ``PATHFINDER_S3_ENDPOINT``
become lines of ``.dvc/config.local``, which git ignores. ``ground.remote.KINDS`` has the kinds of stores. Credentials
stay in the ``AWS_*`` variables.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from evidence.audit.publication import publication
from evidence.audit.published import SENT, remember_entry, signature
from evidence.dvc.history import MAIN_LOCK
from evidence.dvc.stores import FOLDER
from evidence.record.signing import own_public_keys
from ground.io import DataError, TransientError, read_json, sha256_file, write_json, write_text
from ground.remote import Commit, Store, commit_manifest, kind_of, open_store, to_dvc

REMOTE = "PATHFINDER_REMOTE"
DEFAULT = Path(".pathfinder/storage")
_DELAY_S, _PATIENCE_S = 2.0, 10.0
_HEADER = f"# Written by the flow from {REMOTE}; without that variable, the next run removes this file.\n"


def configure(root: Path) -> str:
    """Configure DVC's ``storage`` remote from the environment; returns its address.

    A ``config.local`` without our header was written by hand and is never changed. Raises ``DataError`` if such a file
    conflicts with the environment, or an address contains control characters.
    """
    path = root / ".dvc" / "config.local"
    current = path.read_text(encoding="utf-8") if path.exists() else None
    ours = current is None or current.startswith(_HEADER)
    remote = os.environ.get(REMOTE, "").strip()
    if not remote or Path(remote) == DEFAULT:
        if ours:
            path.unlink(missing_ok=True)
        return str(DEFAULT)
    kind = kind_of(remote)
    for name, value in ({REMOTE: remote} | ({kind.variable: kind.endpoint()} if kind else {})).items():
        if not value.isprintable():
            raise DataError(f"{name}: {value!r} contains control characters; expected an address")
    if not ours:
        raise DataError(f"{path}: written by hand, and {REMOTE} is set; keep one of the two")
    settings = to_dvc(absolute(root, remote.removeprefix("file://")))
    lines = [f"    {name} = {value}\n" for name, value in settings.items()]
    text = "".join([_HEADER, "['remote \"storage\"']\n", *lines])
    if current != text:
        write_text(path, text)
    return remote


def require_remote() -> None:
    """Raise ``DataError`` if the run of a deployment was not told where results go."""
    if not os.environ.get(REMOTE):
        raise DataError(
            f"the deployment does not say where results go: its job variables have no {REMOTE}; repeat "
            "`python -m flows.team.deploy up`, or set it on the deployment's page"
        )


def absolute(root: Path, address: str) -> str:
    """The address of a remote; the path of a folder, which may be relative to ``root``, becomes absolute."""
    return address if "://" in address else str((root / address).absolute())


def opened(root: Path, address: str, folder: str = "") -> Store:
    """The store at the address of a remote, or at a folder in it."""
    base = absolute(root, address)
    return open_store(f"{base.rstrip('/')}/{folder}" if folder else base)


def send_evidence(store: Store, evidence: Mapping[str, bytes]) -> None:
    """Send the evidence that the store does not have yet, by key; the name of a file determines its content."""
    known = {key for kind in sorted({key.partition("/")[0] for key in evidence}) for key in store.keys(f"{kind}/")}
    for key, content in evidence.items():
        if key not in known:
            store.put(key, content)


def publish(root: Path, address: str, stages: Collection[str] | None = None) -> Commit:
    """Append a manifest of the current ``dvc.lock`` to the store's log, sign the entry, and add the records.

    ``stages`` names the stages that a partial run has pushed; ``None`` for all. With log and records, anyone who has
    only the bucket can tell which objects belong together and how they were made. Raises ``DataError`` without a key.
    """
    manifest, evidence = publication(root, stages)
    store = opened(root, address, FOLDER)
    send_evidence(store, evidence)
    commit = commit_manifest(store, manifest, signature)
    entry = store.read(f"log/{commit.number:08d}.json")
    remember_entry(root, address, commit.number, hashlib.sha256(entry).hexdigest())
    if stages is None:
        write_json(root / SENT, {**_sent(root), address: manifest["dvc_lock"]})
    return commit


def is_pending(root: Path, address: str) -> bool:
    """Return whether dvc.lock has changed since all its outs were last pushed to ``address``."""
    lock = root / MAIN_LOCK
    return lock.exists() and _sent(root).get(address) != sha256_file(lock)


def _sent(root: Path) -> dict[str, Any]:
    return dict(read_json(root / SENT)) if (root / SENT).exists() else {}


def preflight(root: Path, address: str) -> None:
    """Write and delete a small object, so that a run which cannot store or sign its results ends before it starts.

    Waits a little for a store that refuses connections, as one that is restarted does. Raises ``DataError`` if the
    store refuses or there is no usable key, and ``TransientError``, within half a minute, if it does not answer.
    """
    own_public_keys()
    store = opened(root, address)
    key = f"probe/{uuid.uuid4().hex}"
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            store.put(key, b"")
            store.delete(key)
            return
        except OSError as error:
            raise DataError(f"{address}: the results cannot be stored there ({error}); see {REMOTE}") from error
        except TransientError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_DELAY_S)


def describe(root: Path, address: str) -> str:
    """A sentence about where the results go, and where the results of earlier runs in this folder went if elsewhere."""
    text = f"results go to {address}" + ("" if os.environ.get(REMOTE) else f" ({REMOTE} is not set)")
    others = sorted(_sent(root).keys() - {address})
    return f"{text}; earlier runs here sent theirs to {', '.join(others)}" if others else text
