"""Copies of the small files of a remote on another machine: its published files, and its cache of runs.

They are in ``EVIDENCE/<remote>/``, in the layout of the remote. What a run published never changes: a copy
that the remote no longer has, or has with different bytes, is a finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evidence.audit.findings import Finding
from evidence.dvc import stores
from evidence.dvc.stores import FOLDER
from ground.hashing import md5_of
from ground.io import DataError, write_bytes
from ground.remote import READERS, Listed, Store

RUNS = "runs/"
_KINDS = tuple(
    f"{FOLDER}/{kind}/" for kind in ("log", "manifests", "signatures", "records", "patches", "keys", "locks")
)
_ENDINGS = (".json", ".dsse", ".sig", ".patch", ".pem", ".lock")
"""The ends of the names of published files: other files here are from file managers and editors."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The result of one refresh: the files that are new here, all files of the remote, and the changes there."""

    new: int
    total: int
    findings: list[Finding]


def fetch(root: Path) -> list[str]:
    """Refresh the copies of all remotes on other machines; returns one line per remote.

    Raises ``DataError`` if a remote no longer has a file that was copied, and ``DataError`` or ``TransientError`` as
    the store does.
    """
    lines = []
    for remote in (each for each in stores.stores(root) if each.folder is None):
        mirrored = refresh(root, remote, remote.opened())
        if mirrored.findings:
            raise DataError(f"{mirrored.findings[0].where}: {mirrored.findings[0].message}")
        lines.append(f"{remote.name}: {mirrored.new} of {mirrored.total} files fetched from {remote.address}")
    return lines


def refresh(root: Path, remote: stores.Store, store: Store) -> Mirrored:
    """Copy the new files of a remote, and compare the earlier copies with the remote's listing.

    Raises ``DataError`` if a key or a link leaves the folder of the copies.
    """
    folder = stores.unlinked(root, stores.EVIDENCE / remote.name)
    found = [*store.listed(f"{FOLDER}/"), *store.listed(RUNS)]
    listed = {item.key: item for item in found if item.key.startswith((*_KINDS, RUNS))}
    for key in listed:
        if not (folder / key).resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{store.url}/{key}: leaves the folder of the evidence; the remote was tampered with")
    copies = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    findings = []
    for key, path in copies.items():
        if key in listed and _is_equal(store, listed[key], path):
            continue
        if key.startswith(RUNS):
            path.unlink()  # entries of the run cache may come and go; check compares each with the records
        elif key in listed or (path.suffix in _ENDINGS and not path.name.startswith(".")):
            what = "it was edited" if key in listed else "it was deleted"
            what = "the log was cut or edited" if "/log/" in key else what
            message = f"is not the file that was fetched earlier: {what}. {path.relative_to(root)} is the copy"
            findings.append(Finding(f"remote {remote.name} {key}", message))
    new = [key for key in listed if not (folder / key).exists()]
    from concurrent.futures import ThreadPoolExecutor  # slow to load; only remotes on other machines need it

    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(lambda key: write_bytes(folder / key, store.read(key)), new))
    return Mirrored(len(new), len(listed), findings)


def _is_equal(store: Store, item: Listed, path: Path) -> bool:
    """Compare a copy with the object in the remote, which is read again only if the listing has no md5."""
    if item.size != path.stat().st_size:
        return False
    if item.md5:
        return item.md5 == md5_of(path)
    return store.read(item.key) == path.read_bytes()
