"""The ``storage`` remote of DVC: a local folder, or the one that two environment variables name.

``PATHFINDER_REMOTE=s3://bucket/prefix`` (or a folder) and, for servers other than AWS, ``PATHFINDER_S3_ENDPOINT``.
They are written to ``.dvc/config.local``, which git ignores; credentials stay in the ``AWS_*`` variables.
"""

from __future__ import annotations

import os
from pathlib import Path

from pathfinder.core.io import DataError, read_json, sha256_file, write_json, write_text
from pathfinder.core.settings import read_yaml
from pathfinder.sources.remote import ENDPOINT, Commit, commit_manifest, open_store

REMOTE = "PATHFINDER_REMOTE"
_SENT = Path(".pathfinder/sent.json")
_DEFAULT = Path(".pathfinder/storage")
_HEADER = f"# Written by the flow from {REMOTE}; without that variable, the next run removes this file.\n"


def configure(root: Path) -> str:
    """Configure DVC's ``storage`` remote from the environment; returns its address.

    A ``config.local`` without our header was written by hand and is never changed. Raises ``DataError`` if such a file
    conflicts with the environment, or an address contains control characters.
    """
    path = root / ".dvc" / "config.local"
    current = path.read_text(encoding="utf-8") if path.exists() else None
    ours = current is None or current.startswith(_HEADER)
    remote, endpoint = (os.environ.get(name, "").strip() for name in (REMOTE, ENDPOINT))
    if not remote:
        if ours:
            path.unlink(missing_ok=True)
        return str(_DEFAULT)
    for name, value in ((REMOTE, remote), (ENDPOINT, endpoint)):
        if not value.isprintable():
            raise DataError(f"{name}: {value!r} contains control characters; expected an address")
    if not ours:
        raise DataError(f"{path}: written by hand, and {REMOTE} is set; keep one of the two")
    url = remote.removeprefix("file://")
    text = f"{_HEADER}['remote \"storage\"']\n    url = {url}\n"
    if url.startswith("s3://") and endpoint:
        text += f"    endpointurl = {endpoint}\n"
    if current != text:
        write_text(path, text)
    return remote


def publish(root: Path, address: str) -> Commit:
    """Append the current outs of ``dvc.lock`` (md5, size) and its sha256 to the log of manifests in the store.

    With the manifest, anyone who has only the bucket can tell which objects belong together.
    """
    lock = root / "dvc.lock"
    outs = {
        out["path"]: {"md5": out["md5"], "size": out["size"], "stage": name}
        for name, stage in read_yaml(lock).get("stages", {}).items()
        for out in stage.get("outs", ())
    }
    digest = sha256_file(lock)
    base = address if "://" in address else str(root / address)
    store = open_store(f"{base.rstrip('/')}/pathfinder")
    commit = commit_manifest(store, {"schema": 1, "dvc_lock": digest, "outs": outs})
    write_json(root / _SENT, {**_sent(root), address: digest})
    return commit


def is_pending(root: Path, address: str) -> bool:
    """Whether dvc.lock has changed since all its outs were last pushed to ``address``."""
    lock = root / "dvc.lock"
    return lock.exists() and _sent(root).get(address) != sha256_file(lock)


def _sent(root: Path) -> dict[str, str]:
    path = root / _SENT
    return dict(read_json(path)) if path.exists() else {}
