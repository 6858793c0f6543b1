"""The result of a stage on a worker: handed back as an artifact of its flow run, and fetched by the flow that waits.

The artifact is the authority: bytes from the bucket are taken only if they have the digests that it names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.dvc.history import MAIN_LOCK, Locked, LockEntry, locked_stage, read_stages
from evidence.dvc.stores import FOLDER, cache_of, run_cache_entries
from evidence.record.ledger import enter_received
from evidence.remote.fetcher import read_verified
from evidence.remote.guard import fetch_outs
from evidence.remote.publication import publication, send_evidence
from evidence.settings.forms import validated
from flows.dvc import State
from flows.storage import opened
from ground.io import DataError, write_bytes
from ground.settings import read_yaml

KEY = "made"
"""The key of the artifact."""
_MD5 = re.compile(r"[0-9a-f]{32}(\.dir)?")
_RUN = re.compile(r"runs/[0-9a-f]{2}/[0-9a-f]{64}/[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Made:
    """The state of the stage, md5 of its outs by path, and sha256 of files in the remote by key.

    ``runs`` holds the entry of DVC's run cache, ``evidence`` the lineage record with its signatures.
    """

    state: State
    outs: Mapping[str, str]
    runs: Mapping[str, str]
    evidence: Mapping[str, str]

    def rows(self) -> list[dict[str, str]]:
        """The rows of the artifact."""
        kinds = {"out": self.outs, "run cache": self.runs, "evidence": self.evidence}
        found = [(kind, path, text) for kind, digests in kinds.items() for path, text in digests.items()]
        return [
            {"kind": kind, "path": path, "digest": text} for kind, path, text in [("state", "", self.state), *found]
        ]

    @classmethod
    def from_rows(cls, rows: Any) -> Made:
        """The content of an artifact; raises ``DataError`` if it is another one."""
        try:
            content = json.loads(rows) if isinstance(rows, str) else rows
            found = [(str(row["kind"]), str(row["path"]), str(row["digest"])) for row in content]
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"artifact {KEY}: a worker's stage makes a different one ({error})") from error

        def part(kind: str) -> dict[str, str]:
            return {path: text for each, path, text in found if each == kind}

        state: Any = part("state").get("", "ran")
        return cls(state, part("out"), part("run cache"), part("evidence"))


def hand_back(root: Path, name: str, state: State, address: str) -> Made:
    """Send the record of a stage whose outs the remote at ``address`` has, and describe what it made.

    Raises ``DataError`` if DVC has no entry of the run cache for it.
    """
    locked = read_stages(root / MAIN_LOCK, MAIN_LOCK)[name]
    cache, path = _run_cache_entry(root, locked)
    _, evidence = publication(root, [name])
    sent = {key: content for key, content in evidence.items() if key.startswith(("records/", "keys/"))}
    send_evidence(opened(root, address, FOLDER), sent)
    records = {key: _sha256(content) for key, content in sent.items() if key.startswith("records/")}
    return Made(state, locked.outs, {path.relative_to(cache).as_posix(): _sha256(path.read_bytes())}, records)


def receive(root: Path, name: str, made: Made, address: str) -> None:
    """Put what a worker made into the cache, the run cache and the ledger of records of this folder.

    Raises ``DataError`` if bytes in the remote are not those that the worker named.
    """
    store = opened(root, address)
    for key, sha256 in made.runs.items():
        if not _RUN.fullmatch(key):
            raise DataError(f"{name}: the worker named {key!r}, which is no entry of a run cache")
        write_bytes(cache_of(root) / key, read_verified(store, key, sha256))
    if wrong := [md5 for md5 in made.outs.values() if not _MD5.fullmatch(md5)]:
        raise DataError(f"{name}: the worker named {wrong[0]!r}, which is no md5")
    fetch_outs(root, made.outs)
    files = {
        key.rpartition("/")[2]: read_verified(store, f"{FOLDER}/{key}", sha256) for key, sha256 in made.evidence.items()
    }
    for file in files:
        if file.endswith(".json"):
            record = file.removesuffix(".json")
            endings = {
                each.removeprefix(record): text.decode() for each, text in files.items() if each.startswith(record)
            }
            enter_received(name, record, endings, root)


def compare(root: Path, name: str, made: Made) -> None:
    """Raise ``DataError`` unless the lock here has the outs that the worker named."""
    outs = read_stages(root / MAIN_LOCK, MAIN_LOCK)[name].outs
    if outs != made.outs:
        other = sorted(path for path in {*outs, *made.outs} if outs.get(path) != made.outs.get(path))
        theirs, ours = made.outs.get(other[0]), outs.get(other[0])
        raise DataError(f"{name}: the worker made {other[0]} with md5 {theirs}, but here it is {ours}")


def _run_cache_entry(root: Path, stage: Locked) -> tuple[Path, Path]:
    """DVC's cache, and the entry of its run cache that states the same as the lock."""
    cache, digests = cache_of(root), {*stage.outs.values(), *stage.deps.values()}
    for path in run_cache_entries(cache):
        if all(md5 in path.read_text(encoding="utf-8") for md5 in digests):
            run = locked_stage(stage.name, validated(LockEntry, read_yaml(path), path.name), path.name)
            if (run.cmd, run.deps, run.params, run.outs) == (stage.cmd, stage.deps, stage.params, stage.outs):
                return cache, path
    raise DataError(f"{stage.name}: DVC keeps no run of it, so it cannot run on other machines; set `pool: here`")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
