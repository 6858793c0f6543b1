"""The index and the report as they were at a git revision: links to the objects of the cache and of remotes here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pathfinder.core.io import DataError
from pathfinder.lineage import history
from pathfinder.lineage.records.down import TABLES
from pathfinder.lineage.stores import listing_of, object_file, object_stores
from pathfinder.lineage.verbs import revision
from pathfinder.reporting.index import schema


@contextmanager
def at(root: Path, rev: str | None) -> Iterator[Path]:
    """Yield a folder with the index and reports/tables.json of a revision; without one, ``root`` itself.

    Raises ``DataError`` if the dvc.lock of the revision has no index, or no store on this machine has its files.
    """
    if rev is None:
        yield root
        return
    with revision.at(root, rev) as folder, tempfile.TemporaryDirectory(prefix="pathfinder-") as name:
        outs = {out: md5 for stage in history.read_lock(folder).values() for out, md5 in stage.outs.items()}
        if (index := schema.INDEX.as_posix()) not in outs:
            raise DataError(f"{rev}:dvc.lock: has no {index}; name a later revision")
        stores = list(object_stores(root))
        for out in (index, TABLES.as_posix()):
            for file, md5 in _files(stores, out, outs.get(out, "")).items():
                link = Path(name) / file
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(_object(stores, md5, f"{rev}:{file}"))
        yield Path(name)


def _files(stores: list[Path], out: str, md5: str) -> dict[str, str]:
    """The md5 of each file of an out, by path; empty if the out does not exist or no store has its listing."""
    if not md5.endswith(".dir"):
        return {out: md5} if md5 else {}
    return {f"{out}/{name}": digest for name, digest in listing_of(stores, md5).items()}


def _object(stores: list[Path], md5: str, name: str) -> Path:
    found = next((file for store in stores if (file := object_file(store, md5)).is_file()), None)
    if found is None:
        raise DataError(f"{name}: no object {md5} in the cache or a remote on this machine; fetch it with `dvc fetch`")
    return found.resolve()
