"""What a run publishes: the manifest of dvc.lock, and the evidence that it names."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError, sha256_file
from pathfinder.lineage.evidence import entered_records
from pathfinder.lineage.history import MAIN_LOCK, read_lock
from pathfinder.provenance.environment import git
from pathfinder.provenance.record import SIGNED
from pathfinder.provenance.signing import key_id, own_key, public_pem


def publication(root: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest of the current dvc.lock as a JSON value, and the content of the evidence files by key.

    Keys and forms are those of ``published``. Raises ``DataError`` if dvc.lock cannot be read.
    """
    outs: dict[str, Any] = {}
    records: dict[str, str] = {}
    evidence: dict[str, bytes] = {}
    for name, stage in read_lock(root).items():
        if stage.file != MAIN_LOCK:
            continue
        record = next((each for each in entered_records(root, name) if each.made(stage)), None)
        for path, md5 in stage.outs.items():
            sha256 = record.content["outputs"][path]["sha256"] if record else None
            outs[path] = {"md5": md5, "size": stage.sizes[path][0], "stage": name, "sha256": sha256}
        if record is not None:
            records[name] = record.digest
            for file in (record.path, record.path.with_suffix(SIGNED)):
                if file.is_file():
                    evidence[f"records/{name}/{file.name}"] = file.read_bytes()
    patch = (git("diff", "--binary", "HEAD", root=root) or "").encode("utf-8", "surrogateescape")
    if patch:
        evidence[f"patches/{_digest(patch)}.patch"] = patch
    commit, tree = git("rev-parse", "HEAD", root=root), git("rev-parse", "HEAD^{tree}", root=root)
    if (key := _own_public_key()) is not None:
        evidence[f"keys/{key_id(key)}.pem"] = key
    manifest = {
        "schema": 2,
        "dvc_lock": sha256_file(root / MAIN_LOCK),
        "outs": outs,
        "records": records,
        "commit": commit.strip() if commit else None,
        "tree": tree.strip() if tree else None,
        "patch": _digest(patch) if patch else None,
        "key": key_id(key) if key is not None else None,
    }
    return manifest, evidence


def _own_public_key() -> bytes | None:
    try:
        return public_pem(own_key().public_key())
    except DataError:  # the recorder has told why when it could not sign
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
