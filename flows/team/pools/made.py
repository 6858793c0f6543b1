"""The result of a stage on a worker: handed back as an artifact of its flow run, and fetched by the flow that waits.

The artifact names the files of the signed record by their digests. The record is the authority: a trusted key must have
signed it, it must state the run that was ordered, and only bytes that it names are taken from the bucket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.dvc.history import MAIN_LOCK, read_stages
from evidence.dvc.lock import entries
from evidence.dvc.stores import FOLDER, cache_of, run_cache_key
from evidence.record.ledger import enter_received
from evidence.remote.fetcher import read_verified
from evidence.remote.guard import fetch_outs
from evidence.remote.handed import Order, other_packages, require_entry
from evidence.remote.publication import publication, send_evidence
from flows.dvc import State
from flows.storage import opened
from ground.io import DataError, sha256_of, write_bytes

KEY = "made"
"""The key of the artifact."""
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
    key = run_cache_key(entries(root)[name])
    if not (cache_of(root) / key).is_file():
        raise DataError(f"{name}: DVC keeps no run of it, so it cannot run on other machines; set `pool: here`")
    _, evidence = publication(root, [name])
    sent = {key: content for key, content in evidence.items() if key.startswith(("records/", "keys/"))}
    send_evidence(opened(root, address, FOLDER), sent)
    records = {key: sha256_of(content) for key, content in sent.items() if key.startswith("records/")}
    outs = read_stages(root / MAIN_LOCK, MAIN_LOCK)[name].outs
    return Made(state, outs, {key: sha256_of((cache_of(root) / key).read_bytes())}, records)


def receive(root: Path, order: Order, made: Made, address: str, allow: Callable[[list[str]], None]) -> None:
    """Put what a worker made into the cache, the run cache and the ledger of records of this folder.

    The signed record is verified before any out is read. ``allow`` gets the packages whose version the lock does not
    pin. Raises ``DataError`` as it and ``Order.accepted`` do, or if bytes in the remote are not as the worker stated.
    """
    name, store = order.stage.name, opened(root, address)
    form = re.compile(rf"records/{re.escape(name)}/[0-9a-f]{{64}}\.(json|dsse|sig)")
    if wrong := [
        *(key for key in made.evidence if not form.fullmatch(key)),
        *(k for k in made.runs if not _RUN.fullmatch(k)),
    ]:
        raise DataError(
            f"{name}: the worker named {wrong[0]!r}, which is no file of its record and no entry of a run cache"
        )
    found = {key: read_verified(store, f"{FOLDER}/{key}", sha256) for key, sha256 in made.evidence.items()}
    files = {key.rpartition("/")[2]: content for key, content in found.items()}
    record = order.accepted(root, files, made.outs, made.state == "ran")
    allow(other_packages(root, record))
    runs = {key: read_verified(store, key, sha256) for key, sha256 in made.runs.items()}
    for key, content in runs.items():
        require_entry(record, key, content)
    fetch_outs(root, made.outs, records=[record])
    for key, content in runs.items():
        write_bytes(cache_of(root) / key, content)
    endings = {file.removeprefix(record.digest): content.decode() for file, content in files.items()}
    enter_received(name, record.digest, endings, root)


def compare(root: Path, name: str, made: Made) -> None:
    """Raise ``DataError`` unless the lock here has the outs that the worker named."""
    outs = read_stages(root / MAIN_LOCK, MAIN_LOCK)[name].outs
    if outs != made.outs:
        other = sorted(path for path in {*outs, *made.outs} if outs.get(path) != made.outs.get(path))
        theirs, ours = made.outs.get(other[0]), outs.get(other[0])
        raise DataError(f"{name}: the worker made {other[0]} with md5 {theirs}, but here it is {ours}")
