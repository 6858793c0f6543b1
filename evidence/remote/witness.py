"""The notes of a second party: the heads of this machine's ledger and of each remote's log, with the time.

Whoever has the runner's key and its disk can write records, ledger and logs anew. A witness has a key of their own, and
keeps its notes in a place that the runner cannot change: a folder in another git repository, or a bucket with object
lock. ``witness/<number>.dsse`` there signs what the witness saw, and names the sha256 of the note before it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from evidence.audit.findings import Finding
from evidence.dvc.stores import FOLDER, stores
from evidence.record.ledger import LEDGER, RECEIPT, RECORDS, Link, following, head_of, read_ledger
from evidence.record.reading import read_record
from evidence.record.signing import opened, sign
from evidence.remote import mirror
from evidence.remote.published import Published
from evidence.settings import VENDOR, Count, Form, Sha256
from ground.io import DataError, TransientError, sha256_of
from ground.remote import open_store

WITNESS_TYPE = f"application/vnd.{VENDOR}.witness+json"
CLOCKS = timedelta(minutes=5)
"""By how much the clocks of a runner and of a witness may differ."""


class Head(Form):
    """The number of the lines or entries that the witness saw, and the sha256 of the last one."""

    number: Count
    sha256: Sha256


class Note(Link):
    """The heads that the witness saw: the ledger, ``None`` without one, and the log of each remote by its DVC name."""

    time: str
    ledger: Head | None
    logs: dict[str, Head]


def heads(root: Path) -> tuple[Head | None, dict[str, Head]]:
    """The heads of the ledger and of the logs that are on this machine or were fetched."""
    lines = (root / LEDGER).read_bytes().splitlines(keepends=True) if (root / LEDGER).is_file() else []
    logs = {}
    for store in (store for store in stores(root) if store.name != "cache"):
        if entries := sorted((store.here(root) / FOLDER).glob("log/[!.]*.json")):
            logs[store.name] = Head(number=len(entries), sha256=head_of([entries[-1].read_bytes()]))
    return Head(number=len(lines), sha256=head_of(lines)) if lines else None, logs


def observe(root: Path, place: str) -> Note:
    """Sign the current heads with this user's key and add the note to a place.

    Raises ``DataError`` if there is nothing to see, or without a key, and ``TransientError`` if another witness came
    first.
    """
    mirror.fetch(root)
    ledger, logs = heads(root)
    if ledger is None and not logs:
        raise DataError(f"{root / LEDGER}: no ledger and no log are here; a witness needs one of them")
    store = open_store(place)
    keys = store.keys("witness/")
    previous = sha256_of(store.read(keys[-1])) if keys else None
    time = datetime.now(UTC).isoformat(timespec="seconds")
    note = Note(number=len(keys) + 1, previous=previous, time=time, ledger=ledger, logs=logs)
    content = json.dumps(sign(note.model_dump_json().encode(), WITNESS_TYPE), sort_keys=True).encode()
    if not store.create(f"witness/{note.number:08d}.dsse", content):
        raise TransientError(f"{place}: another witness came first; run the same command again")
    return note


def _notes(place: str, keys: Mapping[str, bytes]) -> Iterator[tuple[Note, list[str]]]:
    """The notes in a place with their signers, oldest first; raises ``DataError`` without any, or at an unsound one."""
    store, previous = open_store(place), None
    for number, key in enumerate(names := store.keys("witness/"), start=1):
        content, where = store.read(key), f"{place}/{key}"
        kind, payload, signers = opened(content, keys, where)
        if not signers or kind != WITNESS_TYPE:
            raise DataError(f"{where}: no trusted key signed this note; name the public key of the witness with --key")
        yield following(Note, payload, where, number, previous), signers
        previous = sha256_of(content)
    if not names:
        raise DataError(f"{place}: has no notes of a witness")


def compared(
    root: Path, place: str, keys: Mapping[str, bytes], runners: Collection[str], published: Sequence[Published]
) -> Iterator[Finding]:
    """Differences from the notes in a place: a ledger or log that was cut or written anew, and back-dated runs.

    ``runners`` are the keys that sign records: a note by one of them is no second party's.
    """
    try:
        notes = list(_notes(place, keys))
    except DataError as error:
        yield Finding.of(error)
        return
    logs = {each.objects.store.name: each for each in published}
    for note, signers in notes:
        by = f"that witness {signers[0][:12]} saw at {note.time}"
        if set(signers) & set(runners):
            yield Finding(place, "a key that signs runs also signed as the witness, so it is no second party")
        yield from _ledger(root, note, by)
        for name, head in note.logs.items():
            if name in logs:
                yield from _log(root, logs[name], head, note, by)
            else:
                is_known = any(store.name == name for store in stores(root))
                message = f"the log of remote {name}, which the witness saw, was not read; read it with --remote"
                yield Finding(place, message, "note" if is_known else "error")


def _ledger(root: Path, note: Note, by: str) -> Iterator[Finding]:
    """Check that the ledger still begins as the witness saw it, and that no run entered later claims to be older."""
    if note.ledger is None:
        return
    path = root / LEDGER
    if not path.is_file():
        yield Finding(LEDGER.as_posix(), "is not here, so it was not compared with the notes of the witness", "note")
        return
    lines = path.read_bytes().splitlines(keepends=True)[: note.ledger.number]
    if (len(lines), head_of(lines)) != (note.ledger.number, note.ledger.sha256):
        message = f"line {note.ledger.number} is not the one {by}: the ledger was cut or written anew"
        yield Finding(LEDGER.as_posix(), message, cause="witness")
        return
    with suppress(DataError):  # ``tampered_records`` names a broken link
        for entry in (read_ledger(root) or [])[note.ledger.number :]:
            file = root / RECORDS / entry.stage / f"{entry.record}.json"
            if not file.is_file() or not _is_older(read_record(file, root).content, note):
                continue
            where, told = file.relative_to(root).as_posix(), f"says that it ended before {note.time}"
            if file.with_suffix(RECEIPT).is_file():  # the ledger of another machine had it
                yield Finding(where, f"{told}, but was received later", "note", (entry.stage,), entry.record)
            else:
                message = f"{told}, but is not in the ledger {by}: it was back-dated"
                yield Finding(where, message, "error", (entry.stage,), entry.record)


def _log(root: Path, log: Published, head: Head, note: Note, by: str) -> Iterator[Finding]:
    """Check that a log still has what the witness saw, and name later runs that claim to be older."""
    where = f"{log.objects.name(log.folder)}/log"
    if log.digests.get(head.number) != head.sha256:
        yield Finding(where, f"entry {head.number} is not the one {by}: the log was cut or written anew", cause="cut")
        return
    known = {digest for e in log.entries if e.number <= head.number for digest in e.manifest.records.values()}
    with suppress(DataError):
        known |= {entry.record for entry in (read_ledger(root) or [])[: note.ledger.number if note.ledger else 0]}
    for stage, digest in {p for e in log.entries if e.number > head.number for p in e.manifest.records.items()}:
        record = next((each for each in log.records.get(stage, ()) if each.digest == digest), None)
        if digest not in known and record is not None and _is_older(record.content, note):
            message = (
                f"record {digest[:12]} says that it ended before {note.time}, and was published later or back-dated"
            )
            yield Finding(where, message, "note", (stage,), digest)


def _is_older(record: Mapping[str, Any], note: Note) -> bool:
    """True if a run claims to have ended before a note was written; a time that cannot be read counts as older."""
    if not record:  # ``tampered_records`` names what is no record
        return False
    try:
        end, time = (datetime.fromisoformat(str(text)) for text in (record["times"]["end"], note.time))
        return end.replace(tzinfo=end.tzinfo or UTC) < time.replace(tzinfo=time.tzinfo or UTC) - CLOCKS
    except (KeyError, ValueError):
        return True
