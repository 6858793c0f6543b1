"""The notes of a second party: the heads of this machine's ledger and of each remote's log, with the time.

Whoever has the runner's key and its disk can write records, ledger and logs anew. A witness has a separate key, and
keeps its notes in a place that the runner cannot change: a folder in another git repository, or a bucket with object
lock. ``witness/<number>.dsse`` there signs what the witness saw, and names the sha256 of the note before it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.audit.findings import Finding
from evidence.audit.records import signers_of
from evidence.audit.trust import LIST, Keys, moment_of, version_of
from evidence.dvc.stores import FOLDER, stores
from evidence.record.ledger import LEDGER, RECEIPT, RECORDS, SIGNED, Link, following, head_of, read_ledger
from evidence.record.reading import Record, read_record
from evidence.record.signing import opened_as, sign
from evidence.remote import mirror
from evidence.remote.published import Published
from evidence.remote.stamp import proven_time, stamped
from evidence.settings import VENDOR, Count, Form, Sha256
from ground.io import DataError, TransientError, sha256_of
from ground.remote import Store, open_store

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

WITNESS_TYPE = f"application/vnd.{VENDOR}.witness+json"
CLOCKS = timedelta(minutes=5)
"""The largest difference between the clocks of a runner and of a witness."""


class Head(Form):
    """The number of the lines or entries that the witness saw, and the sha256 of the last one."""

    number: Count
    sha256: Sha256


class Note(Link):
    """The heads that the witness saw: the ledger, ``None`` without one, and the log of each remote by its DVC name.

    ``keys`` is the version of the signed list of keys.
    """

    time: str
    ledger: Head | None
    logs: dict[str, Head]
    keys: Head | None = None


def heads(root: Path) -> tuple[Head | None, dict[str, Head]]:
    """The heads of the ledger and of the logs that are on this machine or were fetched."""
    lines = (root / LEDGER).read_bytes().splitlines(keepends=True) if (root / LEDGER).is_file() else []
    logs = {}
    for store in (store for store in stores(root) if store.name != "cache"):
        if entries := sorted((store.here(root) / FOLDER).glob("log/[!.]*.json")):
            logs[store.name] = Head(number=len(entries), sha256=head_of([entries[-1].read_bytes()]))
    return Head(number=len(lines), sha256=head_of(lines)) if lines else None, logs


def observe(root: Path, place: str, tsa: str = "") -> Note:
    """Sign the current heads with this user's key and add the note to a place, with a stamp of the TSA at an address.

    Raises ``DataError`` if there is nothing to see, or without a key, and ``TransientError`` if another witness came
    first or the TSA does not answer.
    """
    mirror.fetch(root)
    ledger, logs = heads(root)
    if ledger is None and not logs:
        raise DataError(f"{root / LEDGER}: no ledger and no log are here; a witness needs one of them")
    store = open_store(place)
    keys = _names(store)
    previous = sha256_of(store.read(keys[-1])) if keys else None
    time = datetime.now(UTC).isoformat(timespec="seconds")
    listed = Head(number=version[0], sha256=version[1]) if (version := version_of(root)) else None
    note = Note(number=len(keys) + 1, previous=previous, time=time, ledger=ledger, logs=logs, keys=listed)
    content = json.dumps(sign(note.model_dump_json().encode(), WITNESS_TYPE), sort_keys=True).encode()
    if tsa:
        store.put(_stamp_of(content), stamped(content, tsa))  # before the note: a witness that is killed leaves none
    if not store.create(f"witness/{note.number:08d}.dsse", content):
        raise TransientError(f"{place}: another witness came first; run the same command again")
    return note


def _names(store: Store) -> list[str]:
    """The keys of the notes in a place, oldest first; a different file there, such as a README, is not a note."""
    return [key for key in store.keys("witness/") if key.endswith(SIGNED)]


def _stamp_of(note: bytes) -> str:
    return f"stamps/{sha256_of(note)}.tsr"


def _notes(place: str, keys: Keys, tsas: Sequence[Certificate]) -> Iterator[tuple[Note, list[str], bool]]:
    """The notes in a place with their signers, oldest first, and whether a TSA proves their time.

    Raises ``DataError`` if there is no note, or if one is not sound.
    """
    store, previous = open_store(place), None
    stamps = set(store.keys("stamps/")) if tsas else set()
    for number, key in enumerate(names := _names(store), start=1):
        content, where = store.read(key), f"{place}/{key}"
        remedy = "no trusted key signed this note; name the public key of the witness with --key"
        payload, signers = opened_as(WITNESS_TYPE, content, keys, where, remedy)
        note = following(Note, payload, where, number, previous)
        if is_stamped := (stamp := _stamp_of(content)) in stamps:
            time, stated = proven_time(store.read(stamp), content, tsas, f"{place}/{stamp}"), moment_of(note.time)
            if stated is None or abs(time - stated) > CLOCKS:
                raise DataError(f"{where}: states the time {note.time}, but its time stamp has {time.isoformat()}")
            note = note.model_copy(update={"time": time.isoformat()})
        keys.refuse(signers, note.time, where)
        yield note, signers, is_stamped
        previous = sha256_of(content)
    if not names:
        raise DataError(f"{place}: has no notes of a witness")


def compared(
    root: Path,
    place: str,
    keys: Keys,
    runners: Collection[str],
    published: Sequence[Published],
    tsas: Sequence[Certificate] = (),
) -> Iterator[Finding]:
    """Differences from the notes in a place: a ledger or log that was cut or written anew, and back-dated runs.

    ``runners`` are the keys that sign records: a note by one of them is not from a second party, unless a TSA below one
    of the certificates ``tsas`` stamped it.
    """
    try:
        notes = list(_notes(place, keys, tsas))
    except DataError as error:
        yield Finding.of(error)
        return
    logs, seen = {each.objects.store.name: each for each in published}, 0
    for note, signers, is_stamped in notes:
        by = f"that witness {signers[0][:12]} saw at {note.time}"
        if set(signers) & set(runners) and not is_stamped:
            yield Finding(place, "a key that signs runs also signed as the witness, so it is not a second party")
        yield from _keys(root, note, by)
        yield from _ledger(root, note, by, keys, seen)
        seen = note.ledger.number if note.ledger else seen
        for name, head in note.logs.items():
            if name in logs:
                yield from _log(root, logs[name], head, note, by)
            else:
                is_known = any(store.name == name for store in stores(root))
                message = f"the log of remote {name}, which the witness saw, was not read; read it with --remote"
                yield Finding(place, message, "note" if is_known else "error")


def _keys(root: Path, note: Note, by: str) -> Iterator[Finding]:
    """Check that the list of keys is the one that the witness saw, or a newer one."""
    now = version_of(root) or (0, "")
    if note.keys and (now[0] < note.keys.number or (now[0] == note.keys.number and now[1] != note.keys.sha256)):
        message = f"is older than version {note.keys.number} {by}, or a different list: restore the newest one"
        yield Finding(LIST.as_posix(), message, cause="witness")


def _ledger(root: Path, note: Note, by: str, keys: Keys, seen: int) -> Iterator[Finding]:
    """Check that the ledger still begins as the witness saw it, and that the times of its runs fit the note.

    A run that was entered after the note must not claim to be older than the note. A run that was entered before it,
    after line ``seen``, must not claim to be newer.
    """
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
        for entry in (read_ledger(root) or [])[seen:]:
            file = root / RECORDS / entry.stage / f"{entry.record}.json"
            where, stages = file.relative_to(root).as_posix(), (entry.stage,)
            if not file.is_file() or not (record := read_record(file, root)).content:
                continue  # ``tampered_records`` names an invalid record
            if entry.number <= note.ledger.number:
                if _ended(record, note) > CLOCKS:
                    message = f"says that it ended after {note.time}, but is in the ledger {by}"
                    yield Finding(where, message, "error", stages, entry.record)
            elif _ended(record, note) < -CLOCKS:
                told = f"says that it ended before {note.time}"
                if not file.with_suffix(RECEIPT).is_file():
                    message = f"{told}, but is not in the ledger {by}: it was back-dated"
                    yield Finding(where, message, "error", stages, entry.record)
                else:  # the ledger of another machine had it
                    yield _late(record, f"{told}, but was received later", where, note, keys)


def _late(record: Record, told: str, where: str, note: Note, keys: Keys) -> Finding:
    """The finding about a run that was seen late: an error if its key was revoked by then."""
    with suppress(DataError):  # ``check`` names an unsound signature
        if loss := keys.revoked(signers_of(record, keys), moment_of(note.time)):
            message = f"{told}, and {loss}: nobody but its signer can say that it is older"
            return Finding(where, message, "error", (str(record.content["stage"]),), record.digest)
    return Finding(where, told, "note", (str(record.content["stage"]),), record.digest)


def _log(root: Path, log: Published, head: Head, note: Note, by: str) -> Iterator[Finding]:
    """Check that a log still has what the witness saw, and name later runs that claim to be older."""
    where = f"{log.objects.name(log.folder)}/log"
    if log.digests.get(head.number) != head.sha256:
        yield Finding(where, f"entry {head.number} is not the one {by}: the log was cut or written anew", cause="cut")
        return
    known = {digest for e in log.entries if e.number <= head.number for digest in e.manifest.records.values()}
    with suppress(DataError):
        known |= {entry.record for entry in (read_ledger(root) or [])[: note.ledger.number if note.ledger else 0]}
    later = (pair for e in log.entries if e.number > head.number for pair in e.manifest.records.items())
    for stage, digest in dict.fromkeys(later):
        record = log.records.get(stage, {}).get(digest)
        if digest not in known and record is not None and _ended(record, note) < -CLOCKS:
            told = f"record {digest[:12]} says that it ended before {note.time}, and was published later or back-dated"
            yield _late(record, told, where, note, log.keys)


def _ended(record: Record, note: Note) -> timedelta:
    """The time from a note to the end that a run claims; a time that cannot be read counts as older."""
    end, time = (moment_of(text) for text in (record.content["times"]["end"], note.time))
    return end - time if end and time else timedelta.min
