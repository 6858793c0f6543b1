"""The objects that must stay in DVC's cache and remote because a commit, a folder or a published run names them.

A name is any text of the form of an md5 in a lock, a ``.dvc`` file or a manifest, so a form that this module does
not know keeps too much, not too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evidence.dvc.history import MAIN_LOCK, pointers
from evidence.dvc.pipeline import PIPELINES
from evidence.dvc.stores import FOLDER, object_key, parse_listing
from flows.team.deployment import git
from ground.hashing import digest_chunks
from ground.io import DataError
from ground.remote import READERS, Store

_MD5 = re.compile(rb"\b[0-9a-f]{32}\b(?:\.dir\b)?")
_EVIDENCE = ("manifests/", "locks/")


def in_text(content: bytes) -> set[str]:
    """Every md5 in a text, with ``.dir`` where it names a folder."""
    return {found.decode() for found in _MD5.findall(content)}


def in_folder(root: Path) -> set[str]:
    """The objects that locks and ``.dvc`` files in a folder name, committed or not."""
    locks = [root / file.with_name(MAIN_LOCK) for file in PIPELINES]
    return {md5 for path in (*locks, *pointers(root)) if path.is_file() for md5 in in_text(path.read_bytes())}


def in_history(repository: Path) -> set[str]:
    """The objects that commits with a reference or reflog name; raises ``DataError`` if a clone is shallow."""
    if git.text(repository, "rev-parse", "--is-shallow-repository") == "true":
        raise DataError(f"{repository}: is a shallow clone, so older commits are unknown; run `git fetch --unshallow`")
    # Every version of a file is new to some commit and one of its parents, so the changes name all of them.
    raw = ["--raw", "--no-abbrev", "--no-renames", "-m", "--root", "--format="]
    changes = git.run(repository, "log", "--all", "--reflog", "--full-history", *raw, "--", f"*{MAIN_LOCK}", "*.dvc")
    blobs = {line.split()[3] for line in changes.splitlines() if line.startswith(b":")}
    present = sorted(blob for blob in blobs if blob.strip(b"0"))
    return in_text(git.run(repository, "cat-file", "--batch", given=b"".join(blob + b"\n" for blob in present)))


def in_evidence(store: Store) -> set[str]:
    """The objects that the entries of published runs in a remote name; raises as a store does."""
    keys = [key for kind in _EVIDENCE for key in store.keys(f"{FOLDER}/{kind}")]
    return set[str]().union(*map(in_text, _read(store, keys)))


def in_entries(store: Store, keys: Sequence[str]) -> Mapping[str, set[str]]:
    """The objects that entries of the run cache name, by key."""
    return dict(zip(keys, map(in_text, _read(store, keys)), strict=True))


def with_files(named: Iterable[str], stores: Iterable[Store]) -> set[str]:
    """``named`` and the files of their folders as ``stores`` list them; raises ``DataError`` if a list was edited."""
    kept = set(named)
    for store in stores:
        have = set(store.keys("files/md5/"))
        folders = sorted(md5 for md5 in kept if md5.endswith(".dir") and object_key(md5) in have)
        for md5, content in zip(folders, _read(store, map(object_key, folders)), strict=True):
            if digest_chunks([content]).md5 != md5.removesuffix(".dir"):
                raise DataError(
                    f"{store.url}/{object_key(md5)}: was edited, so the files of this folder are unknown and nothing "
                    "is deleted; `pathfinder lineage check --remote` says what it is"
                )
            kept |= set(parse_listing(content, object_key(md5)).values())
    return kept


def _read(store: Store, keys: Iterable[str]) -> Iterator[bytes]:
    with ThreadPoolExecutor(READERS) as pool:
        yield from pool.map(store.read, keys)
