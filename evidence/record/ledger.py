"""The ledger: one line per record of this machine, each with the sha256 of the line before it.

A record that is deleted, replaced or added by hand no longer agrees with the ledger; an edited, removed or moved line
breaks the chain. The signed statement of each record names the line before its own, so only the end of the chain can be
written anew without the key.

The files of a record get their names after the ledger names the record, so the ledger names every
named file. ``file_of`` finds the files of a run that was killed in between; the next run gives them their names.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from evidence.record.signing import sign
from evidence.record.statement import HEAD, RECEIPT_TYPE
from evidence.settings import STATE, Count, Form, Sha256, parsed
from ground.io import DataError, make_folder, open_bytes, sha256_of, sync, write_text

RECORDS = STATE / "lineage"
LEDGER = RECORDS / "ledger.jsonl"
SIGNED = ".dsse"
"""Ending of the signed statement about a record; the rest of its name is the record's."""
RECEIPT = ".received.dsse"
"""Ending of the signed receipt of a record that another machine's ledger entered first."""
_NEW = ".new"
"""The end of a file's name until the ledger names its record."""


class Link(Form):
    """A part of a chain: its number from 1, and the sha256 of the part before it."""

    number: Count
    previous: Sha256 | None


class Entry(Link):
    """One line of the ledger, which adds a record with its signed statement."""

    stage: str
    record: Sha256
    statement: Sha256 | None = None


Part = TypeVar("Part", bound=Link)


def following(model: type[Part], content: bytes, name: str, number: int, previous: str | None) -> Part:
    """The part of a chain in a JSON text; raises ``DataError`` unless it has this number and names the part before."""
    part = parsed(model, content, name)
    if (part.number, part.previous) != (number, previous):
        raise DataError(
            f"{name}: the chain is broken: it has number {part.number} and previous {(part.previous or 'none')[:12]}, "
            f"expected {number} and {(previous or 'none')[:12]}; a part before it was edited, removed or moved"
        )
    return part


def enter(stage: str, record: str, make: Callable[[str], Mapping[str, str]], root: Path = Path(".")) -> None:
    """Add a record under its sha256, unless the ledger has it. Stages that end at the same time wait for one another.

    ``make`` gives the files of the record to write, text by ending, for the head of the ledger: the sha256 of its last
    line, or of nothing. The signed statement names the head. A last line that a full disk or a loss of power cut off is
    removed. On a file system without locks, nobody waits.
    """
    path = root / LEDGER
    make_folder(path.parent)
    with path.open("a+b") as handle:
        with suppress(OSError):  # no locks
            fcntl.flock(handle.fileno(), fcntl.LOCK_EX)  # ends with the file
        handle.seek(0)
        content = handle.read()
        handle.truncate(content.rfind(b"\n") + 1)
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        _name_files(root, lines)
        is_entered = any(record.encode() in line for line in lines)  # perhaps by a run that was killed
        if is_entered and (root / RECORDS / stage / f"{record}.json").exists():
            return
        files = make(head_of(lines))
        for ending, text in files.items():
            write_text(root / RECORDS / stage / f"{record}{ending}{_NEW}", text)
        statement = sha256_of(files[SIGNED].encode()) if SIGNED in files else None
        entry = {"number": len(lines) + 1, "stage": stage, "record": record, "statement": statement}
        entry["previous"] = head_of(lines) if lines else None
        lines.append(json.dumps(entry, sort_keys=True).encode() + b"\n")
        handle.write(lines[-1])
        handle.flush()
        os.fsync(handle.fileno())
        if len(lines) == 1:  # the ledger is new
            sync(path.parent)
        _name_files(root, lines)


def enter_received(stage: str, record: str, files: Mapping[str, str], root: Path = Path(".")) -> None:
    """Add a record of another machine, whose statement names the ledger there, with a receipt that names this one.

    Raises ``DataError`` if this user has no usable key.
    """

    def make(head: str) -> dict[str, str]:
        receipt = sign(json.dumps({"record": record, HEAD: head}).encode(), RECEIPT_TYPE)
        return {**files, RECEIPT: json.dumps(receipt) + "\n"}

    enter(stage, record, make, root)


def head_of(lines: Sequence[bytes]) -> str:
    """The sha256 of the last line, or of nothing."""
    return sha256_of(lines[-1] if lines else b"")


def file_of(path: Path) -> Path:
    """The file of a record, which has another name if its run was killed before it could get this one."""
    return path if path.exists() else path.with_name(path.name + _NEW)


def _name_files(root: Path, lines: list[bytes]) -> None:
    """Rename the files of records that the ledger names, signatures first; delete the rest."""
    ledger = b"".join(lines)
    for file in sorted(root.glob(f"{RECORDS}/*/*{_NEW}"), key=lambda file: file.stem.endswith(".json")):
        if file.name.partition(".")[0].encode() in ledger:
            file.replace(file.with_suffix(""))
        else:
            file.unlink()


def read_ledger(root: Path) -> list[Entry] | None:
    """The entries in order; ``None`` if there is no ledger. Raises ``DataError`` at the first broken link."""
    path = root / LEDGER
    if not path.exists():
        return None
    with open_bytes(path) as handle:
        return [*_entries(handle.read())]


@lru_cache(maxsize=1)
def _entries(content: bytes) -> tuple[Entry, ...]:
    entries, previous = list[Entry](), None
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        entries.append(following(Entry, line, f"{LEDGER}:{number}", number, previous))
        previous = sha256_of(line)
    return tuple(entries)
