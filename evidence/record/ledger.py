"""The ledger: one line per record of this machine, each with the sha256 of the line before it.

A record that is deleted, replaced or added by hand no longer agrees with the ledger; an edited, removed or moved line
breaks the chain. Whoever can write here can still rewrite the whole chain: only a copy elsewhere reveals that.

The files of a record get their names after the ledger names the record, so the ledger names every
named file. ``file_of`` finds the files of a run that was killed in between; the next run gives them their names.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from evidence.settings import STATE
from evidence.settings.forms import Count, Form, Sha256, parsed
from ground.io import DataError, make_folder, open_bytes, read_json, sync, write_text

RECORDS = STATE / "lineage"
LEDGER = RECORDS / "ledger.jsonl"
_NEW = ".new"
"""The end of a file's name until the ledger names its record."""


class Entry(Form):
    """One line: its number from 1, the record that it adds with its signed statement, and the line before it."""

    number: Count
    stage: str
    record: Sha256
    statement: Sha256 | None = None
    previous: Sha256 | None


def enter(
    stage: str,
    record: str,
    statement: str | None = None,
    root: Path = Path("."),
    files: Mapping[str, str] | None = None,
) -> None:
    """Add a record and its signed statement, named by their sha256; stages that end at once wait for one another.

    ``files`` are the files of the record to write: text by ending. A new ledger begins with the records of older
    versions, which kept no ledger. A last line that a full disk or a loss of power cut off is removed.
    """
    path = root / LEDGER
    make_folder(path.parent)
    with path.open("a+b") as handle:
        fcntl.flock(handle.fileno(), fcntl.LOCK_EX)  # ends with the file
        handle.seek(0)
        content = handle.read()
        handle.truncate(content.rfind(b"\n") + 1)
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        _name_files(root, lines)
        for ending, text in (files or {}).items():
            write_text(root / RECORDS / stage / f"{record}{ending}{_NEW}", text)
        older = [] if lines else sorted(root.glob(f"{RECORDS}/*/*.json"), key=lambda file: file.stat().st_mtime_ns)
        added = [(file.parent.name, file.stem, None) for file in older if file.stem != record and _has_no_schema(file)]
        for name, digest, signed in [*added, (stage, record, statement)]:
            previous = hashlib.sha256(lines[-1]).hexdigest() if lines else None
            entry = {
                "number": len(lines) + 1,
                "stage": name,
                "record": digest,
                "statement": signed,
                "previous": previous,
            }
            lines.append(json.dumps(entry, sort_keys=True).encode() + b"\n")
            handle.write(lines[-1])
        handle.flush()
        os.fsync(handle.fileno())
        if len(lines) == 1 + len(added):  # the ledger is new
            sync(path.parent)
        _name_files(root, lines)


def file_of(path: Path) -> Path:
    """The file of a record, which has another name if its run was killed before it could get this one."""
    return path if path.exists() else path.with_name(path.name + _NEW)


def _name_files(root: Path, lines: list[bytes]) -> None:
    """Give files of records that the ledger names their names, signatures first; delete the others."""
    ledger = b"".join(lines)
    for file in sorted(root.glob(f"{RECORDS}/*/*{_NEW}"), key=lambda file: file.stem.endswith(".json")):
        if file.name.partition(".")[0].encode() in ledger:
            file.replace(file.with_suffix(""))
        else:
            file.unlink()


def _has_no_schema(record: Path) -> bool:
    """True if a record is of the version that kept no ledger."""
    try:
        return "schema" not in read_json(record)
    except DataError:
        return False


def read_ledger(root: Path) -> list[Entry] | None:
    """The entries in order; ``None`` if there is no ledger. Raises ``DataError`` at the first broken link."""
    path = root / LEDGER
    if not path.exists():
        return None
    entries: list[Entry] = []
    previous = None
    with open_bytes(path) as handle:
        lines = handle.read().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        entry = parsed(Entry, line, f"{LEDGER}:{number}")
        if (entry.number, entry.previous) != (number, previous):
            raise DataError(
                f"{LEDGER}:{number}: the chain is broken: it has number {entry.number} and previous "
                f"{(entry.previous or 'none')[:12]}, expected {number} and {(previous or 'none')[:12]}; a line before "
                "it was edited, removed or moved"
            )
        entries.append(entry)
        previous = hashlib.sha256(line).hexdigest()
    return entries
