"""The ledger: one line per record of this machine, each with the sha256 of the line before it.

A record that is deleted, replaced or added by hand no longer agrees with the ledger; an edited, removed or moved line
breaks the chain. Whoever can write here can still rewrite the whole chain: only a copy elsewhere reveals that.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path

from pathfinder.core.io import DataError, make_folder, open_bytes, sync
from pathfinder.provenance.schema import Count, Form, Sha256, parsed

RECORDS = Path(".pathfinder/lineage")
LEDGER = RECORDS / "ledger.jsonl"


class Entry(Form):
    """One line: its number from 1, the record that it adds with its signed statement, and the line before it."""

    number: Count
    stage: str
    record: Sha256
    statement: Sha256 | None = None
    previous: Sha256 | None


def enter(stage: str, record: str, statement: str | None = None, root: Path = Path(".")) -> None:
    """Add a record and its signed statement, named by their sha256; stages that end at once wait for one another.

    A new ledger begins with the records that exist already, because older versions kept no ledger.
    """
    path = root / LEDGER
    make_folder(path.parent)
    with path.open("a+b") as handle:
        fcntl.flock(handle.fileno(), fcntl.LOCK_EX)  # ends with the file
        handle.seek(0)
        lines = handle.read().splitlines(keepends=True)
        older = [] if lines else sorted(root.glob(f"{RECORDS}/*/*.json"), key=lambda file: file.stat().st_mtime_ns)
        added = [(file.parent.name, file.stem, None) for file in older if file.stem != record]
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
