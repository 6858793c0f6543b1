"""Where results go: the ``storage`` remote, a local folder unless two environment variables say otherwise.

``PATHFINDER_REMOTE=s3://bucket/prefix`` (or a folder) and, for servers other than AWS, ``PATHFINDER_S3_ENDPOINT``.
They are written to ``.dvc/config.local``, which git ignores; credentials stay in the ``AWS_*`` variables.
"""

from __future__ import annotations

import os
from pathlib import Path

from pathfinder.core.io import DataError, read_json, sha256_file, write_json, write_text
from pathfinder.sources.remote import ENDPOINT, Commit, commit_manifest, open_store

REMOTE = "PATHFINDER_REMOTE"
_SENT = Path(".pathfinder/sent.json")
_DEFAULT = Path(".pathfinder/storage")
_HEADER = f"# Written by the flow from {REMOTE}; without that variable the next run removes this file.\n"


def configure(root: Path) -> str:
    """Point DVC's ``storage`` remote at what the environment names; returns its address.

    A ``config.local`` written by hand is kept: only a file that carries our header is replaced or removed.
    """
    path = root / ".dvc" / "config.local"
    ours = not path.exists() or path.read_text(encoding="utf-8").startswith(_HEADER)
    remote = os.environ.get(REMOTE, "").strip()
    if not remote:
        if ours:
            path.unlink(missing_ok=True)
        return str(_DEFAULT)
    endpoint = os.environ.get(ENDPOINT, "").strip()
    for name, value in ((REMOTE, remote), (ENDPOINT, endpoint)):
        if not value.isprintable():
            raise DataError(f"{name}: {value!r} holds characters that no address has")
    if not ours:
        raise DataError(f"{path}: written by hand, and {REMOTE} is set; keep one of the two")
    url = remote.removeprefix("file://")
    lines = [_HEADER, "['remote \"storage\"']\n", f"    url = {url}\n"]
    if url.startswith("s3://") and endpoint:
        lines.append(f"    endpointurl = {endpoint}\n")
    text = "".join(lines)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
    return remote


def publish(root: Path, address: str, exclusive: bool | None = None) -> Commit:
    """Append what ``dvc.lock`` names now to the log beside the DVC objects: outs with md5 and size, the lock's sha256.

    With it, whoever has only the bucket finds which objects belong together.
    """
    import yaml

    lock = root / "dvc.lock"
    content = yaml.safe_load(lock.read_text(encoding="utf-8")) or {}
    outs = {
        out["path"]: {"md5": out["md5"], "size": out["size"], "stage": name}
        for name, stage in content.get("stages", {}).items()
        for out in stage.get("outs", ())
    }
    digest = sha256_file(lock)
    base = address if "://" in address else str(root / address)
    store = open_store(f"{base.rstrip('/')}/pathfinder")
    commit = commit_manifest(store, {"schema": 1, "dvc_lock": digest, "outs": outs}, exclusive)
    write_json(root / _SENT, {**_sent(root), address: digest})
    return commit


def is_pending(root: Path, address: str) -> bool:
    """True where dvc.lock has changed since everything that it names was last sent to ``address``."""
    lock = root / "dvc.lock"
    return lock.exists() and _sent(root).get(address) != sha256_file(lock)


def _sent(root: Path) -> dict[str, str]:
    path = root / _SENT
    sent: dict[str, str] = read_json(path) if path.exists() else {}
    return sent
