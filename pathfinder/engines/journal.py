"""An append-only journal of answers. It survives any kill, so no answer is paid for twice.

Each line is a JSON object ``{"sum": …, "key": …, "value": …}``; ``sum`` is the first 16 hexadecimal digits of the
sha256 of the rest of the line. An entry is written at once, so killing this process loses none. Entries are fsynced in
batches, so a power failure loses at most the last second. A lock keeps out a second writer and ends with its process.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

from ground.io import DataError, make_folder, sync
from ground.recording import joined, journal_used

_KEY = re.compile(r"[A-Za-z0-9:._/-]+")
_LINE = re.compile(rb'\{"sum": "([0-9a-f]{16})", ("key": "([A-Za-z0-9:._/-]+)", "value": .*\})\n')
_SIZE_BITS = 32  # a place is start << 32 | size: one number per key keeps the index small
_USED = 1 << 31  # in the size: this run read or wrote the entry
_SYNC_ENTRIES = 64
_SYNC_S = 1.0
# ASCII escapes keep an answer with lone surrogates or line separators on one line.
_encode = json.JSONEncoder(allow_nan=False).encode


class Journal:
    """A mapping from key to JSON value on disk; memory holds only the digest and place of each key, about 130 bytes.

    Opening locks the file, removes a torn last line and verifies all other lines. Raises ``DataError`` if a line is
    damaged or another process holds the lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[bytes, int] = {}
        self._end = 0
        self._unsynced = 0
        self._synced = time.monotonic()
        make_folder(path.parent)
        if path.is_dir():
            raise DataError(f"{path}: a folder, expected a journal; remove it")
        if not path.exists():
            path.touch()
        sync(path.parent)
        self._file: IO[bytes] = path.open("a+b")
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._load()
        except BaseException as error:
            self._file.close()
            if isinstance(error, BlockingIOError):
                raise DataError(f"{path}: another process is writing this journal; wait for it or stop it") from None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.sync()
            journal_used(self.path, self.used())
        finally:
            self._file.close()  # releases the lock

    def __contains__(self, key: str) -> bool:
        return _digest(key.encode()) in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: str) -> Any:
        """Read the value of ``key``; raises ``KeyError`` if there is none."""
        digest = _digest(key.encode())
        place = self._places.get(digest)
        if place is None:
            raise KeyError(key)
        self._places[digest] = place | _USED
        start, end = _bytes_of(place)
        return json.loads(os.pread(self._file.fileno(), end - start, start))["value"]

    def used(self) -> list[list[int]]:
        """The bytes of the entries that were read or written since the opening, as ranges (start, end)."""
        return joined(_bytes_of(place) for place in self._places.values() if place & _USED)

    def write(self, key: str, value: Any) -> None:
        """Add an entry, fsynced in batches of 64 or one second.

        Raises ``ValueError`` for a known or malformed key, ``OSError`` with the file's name if the disk is full.
        """
        digest = _digest(key.encode())
        if digest in self._places:
            raise ValueError(f"{self.path}: {key} is already answered")
        line = _line(key, value)
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(self._file.fileno(), view) :]
        except OSError as error:
            self._file.truncate(self._end)  # a full disk must not leave half a line before a later one
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self._places[digest] = self._end << _SIZE_BITS | len(line) | _USED
        self._end += len(line)
        self._unsynced += 1
        if self._unsynced >= _SYNC_ENTRIES or time.monotonic() - self._synced > _SYNC_S:
            self.sync()

    def append(self, entries: Mapping[str, Any]) -> None:
        """Add entries and wait until they are on disk; raises ``ValueError`` like ``write``."""
        for key, value in entries.items():
            self.write(key, value)
        self.sync()

    def sync(self) -> None:
        """Wait until all entries are on disk."""
        if self._unsynced:
            os.fsync(self._file.fileno())
            self._unsynced = 0
        self._synced = time.monotonic()

    def _load(self) -> None:
        self._file.seek(0)
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break  # only the last line can be incomplete, after a kill
            found = _LINE.fullmatch(line)
            if found is None or found[1] != _checksum(found[2]):
                raise DataError(
                    f"{self.path}:{number}: damaged (its checksum does not match); restore the file, or delete this "
                    "line to ask for its answer again"
                )
            digest = _digest(found[3])
            if digest in self._places:
                raise DataError(f"{self.path}:{number}: {found[3].decode()} occurs twice; delete one of the two lines")
            self._places[digest] = self._end << _SIZE_BITS | len(line)
            self._end += len(line)
        self._file.truncate(self._end)


def _digest(key: bytes) -> bytes:
    """Represents a key in memory; 128 bits make collisions within a journal impossible in practice."""
    return hashlib.blake2b(key, digest_size=16).digest()


def _bytes_of(place: int) -> tuple[int, int]:
    start = place >> _SIZE_BITS
    return start, start + (place & (_USED - 1))


def _line(key: str, value: Any) -> bytes:
    if not _KEY.fullmatch(key):
        raise ValueError(f"journal key {key!r}: expected only letters, digits and :._/-")
    body = f'"key": "{key}", "value": {_encode(value)}}}'.encode()
    return b'{"sum": "%b", %b\n' % (_checksum(body), body)


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()
