"""The index and the report as they were at a git revision: links to the files in the stores of this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evidence.dvc.history import MAIN_LOCK
from evidence.verbs.targets import Files
from extras.records.down import TABLES
from ground.io import DataError
from pathfinder.reporting.index import schema


@contextmanager
def at(root: Path, rev: str | None) -> Iterator[Path]:
    """Yield a folder with the index and reports/tables.json of a revision; without one, ``root`` itself.

    Raises ``DataError`` if the lock of the revision has no index, or no store of this machine has its files.
    """
    if rev is None:
        yield root
        return
    files = Files(root, rev)
    if (index := files.md5(schema.INDEX.as_posix())) is None:
        raise DataError(f"{rev}:{MAIN_LOCK}: has no {schema.INDEX}; name a later revision")
    wanted = files.files_of(schema.INDEX.as_posix(), index)
    if tables := files.md5(TABLES.as_posix()):
        wanted[TABLES.as_posix()] = tables
    with tempfile.TemporaryDirectory(prefix="pathfinder-") as name:
        for path, md5 in wanted.items():
            link = Path(name) / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(files.stored(path, md5).resolve())
        yield Path(name)
