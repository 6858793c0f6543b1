"""The result of a stage on another machine: stated in the lease of the stage, and fetched by whoever waits for it.

It names the files of the signed record by their digests. The record is the authority: a trusted key must have signed
it, it must state the run that was ordered, and only bytes that it names are taken from the bucket.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from evidence.dvc.history import MAIN_LOCK, read_stages
from evidence.dvc.lock import entries
from evidence.dvc.stores import FOLDER, cache_of, run_cache_key
from evidence.record.ledger import RECORDS, enter_received
from evidence.remote.fetcher import read_verified
from evidence.remote.guard import fetch_outs
from evidence.remote.handed import Order, other_packages, require_entry
from evidence.remote.publication import opened, publication, send_evidence
from evidence.settings import Form
from ground.io import DataError, sha256_of, write_bytes

State = Literal["ran", "restored", "up to date"]
_RUN = re.compile(r"runs/[0-9a-f]{2}/[0-9a-f]{64}/[0-9a-f]{64}")


class Made(Form):
    """The state of the stage, md5 of its outs by path, and sha256 of files in the remote by key.

    ``runs`` holds the entry of DVC's run cache, ``evidence`` the lineage record with its signatures.
    """

    state: State
    outs: dict[str, str]
    runs: dict[str, str]
    evidence: dict[str, str]


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
    runs = {key: sha256_of((cache_of(root) / key).read_bytes())}
    return Made(state=state, outs=outs, runs=runs, evidence=records)


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
    if not (root / RECORDS / name / f"{record.digest}.json").exists():
        endings = {file.removeprefix(record.digest): content.decode() for file, content in files.items()}
        enter_received(name, record.digest, endings, root)


def compare(root: Path, name: str, made: Made) -> None:
    """Raise ``DataError`` unless the lock here has the outs that the worker named."""
    outs = read_stages(root / MAIN_LOCK, MAIN_LOCK)[name].outs
    if outs != made.outs:
        other = sorted(path for path in {*outs, *made.outs} if outs.get(path) != made.outs.get(path))
        theirs, ours = made.outs.get(other[0]), outs.get(other[0])
        raise DataError(f"{name}: the worker made {other[0]} with md5 {theirs}, but here it is {ours}")
