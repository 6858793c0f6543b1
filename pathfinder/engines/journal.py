"""An append-only journal of answers that survives any kill: what was paid for once is never asked for again.

One JSON object a line, ``{"sum": …, "key": …, "value": …}``; ``sum`` is the first 16 hexadecimal digits of the sha256
of the rest of the line. Every entry is handed to the system at once, so a kill of this process costs none; fsyncs are
batched, so a power cut costs those of the last second at most. A line that was cut short at the end is removed; damage
anywhere else is refused with its line. A lock keeps a second writer out and vanishes with its process.
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
from types import TracebackType
from typing import IO, Any, Self

from pathfinder.core.io import DataError

_HEAD = b'{"sum": "'
_AFTER_SUM = b'", "key": "'
_AFTER_KEY = b'", "value": '
_SUM = slice(len(_HEAD), len(_HEAD) + 16)
_BODY = _SUM.stop + 3  # the summed part: from the key's name to before the end of the line
_KEY_START = _SUM.stop + len(_AFTER_SUM)
_KEY = re.compile(r"[A-Za-z0-9:._/-]+")
_SIZE_BITS = 32  # a place is start << 32 | size: one number a key keeps the index small
_SYNC_ENTRIES = 64
_SYNC_S = 1.0
# ASCII escapes: lone surrogates and line separators in a model's answer stay inside their line.
_encode = json.JSONEncoder(allow_nan=False).encode


class Journal:
    """Key -> JSON value, on disk; memory holds a digest and a place for each key, some 130 bytes.

    Opening takes the lock, heals a torn end and checks every line; raises ``DataError`` for damage or a second writer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[bytes, int] = {}
        self._end = 0
        self._unsynced = 0
        self._synced = time.monotonic()
        path.parent.mkdir(parents=True, exist_ok=True)
        created = not path.exists()
        self._file: IO[bytes] = path.open("a+b")
        try:
            self._lock()
            if created:
                _sync_folder(path.parent)
            self._load()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Sync what is not yet, and give up the lock."""
        try:
            self.sync()
        finally:
            self._file.close()

    def __contains__(self, key: str) -> bool:
        return _digest(key.encode()) in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: str) -> Any:
        """The value of ``key``; ``KeyError`` where nothing was written."""
        place = self._places.get(_digest(key.encode()))
        if place is None:
            raise KeyError(key)
        line = os.pread(self._file.fileno(), place & ((1 << _SIZE_BITS) - 1), place >> _SIZE_BITS)
        return json.loads(line)["value"]

    def write(self, key: str, value: Any) -> None:
        """Add one entry; it is synced with others, 64 at a time or after a second. A known key is refused."""
        self._add({key: value})
        if self._unsynced >= _SYNC_ENTRIES or time.monotonic() - self._synced > _SYNC_S:
            self.sync()

    def append(self, entries: Mapping[str, Any]) -> None:
        """Add a batch with one write and one fsync. A known key is refused, and the whole batch with it."""
        if entries:
            self._add(entries)
            self.sync()

    def sync(self) -> None:
        """Return when all that was written is on the disk."""
        if self._unsynced:
            os.fsync(self._file.fileno())
            self._unsynced = 0
        self._synced = time.monotonic()

    def _add(self, entries: Mapping[str, Any]) -> None:
        places, content, end = {}, bytearray(), self._end
        for key, value in entries.items():
            digest = _digest(key.encode())
            if digest in self._places:
                raise ValueError(f"{self.path}: {key} is already answered")
            line = _line(key, value)
            places[digest] = (end + len(content)) << _SIZE_BITS | len(line)
            content += line
        try:
            _write_all(self._file.fileno(), content)
        except OSError:
            self._file.truncate(self._end)  # a full disk must not leave half a batch before a later one
            raise
        self._places |= places
        self._end = end + len(content)
        self._unsynced += len(places)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"{self.path}: another process is writing this journal; wait for it to end or stop it"
            ) from None

    def _load(self) -> None:
        self._file.seek(0)
        end, places = 0, self._places
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break  # only the last line can lack its end: a kill cut it short
            key = _key_of(line)
            if key is None:
                raise DataError(
                    f"{self.path}:{number}: damaged (its check sum does not fit); restore the file, or remove this "
                    "line and accept that its answer is asked for again"
                )
            digest = _digest(key)
            if digest in places:
                raise DataError(
                    f"{self.path}:{number}: {key.decode()} stands in the journal twice; remove one of the lines"
                )
            places[digest] = end << _SIZE_BITS | len(line)
            end += len(line)
        self._file.truncate(end)
        self._end = end


def _digest(key: bytes) -> bytes:
    """What stands for a key in memory; 128 bits, so that no two keys of any journal meet."""
    return hashlib.blake2b(key, digest_size=16).digest()


def _line(key: str, value: Any) -> bytes:
    if not _KEY.fullmatch(key):
        raise ValueError(f"journal key {key!r}: expected letters, digits and :._/- alone")
    body = f'"key": "{key}", "value": {_encode(value)}}}'.encode()
    return b'%b%b", %b\n' % (_HEAD, hashlib.sha256(body).hexdigest()[:16].encode(), body)


def _key_of(line: bytes) -> bytes | None:
    """The key of a whole line; ``None`` where the line is not one that ``_line`` made."""
    body = line[_BODY:-1]
    if (
        not line.startswith(_HEAD)
        or not line.startswith(_AFTER_SUM, _SUM.stop)
        or hashlib.sha256(body).hexdigest()[:16].encode() != line[_SUM]
    ):
        return None
    key_end = line.find(_AFTER_KEY, _KEY_START)
    return line[_KEY_START:key_end] if key_end > 0 else None


def _write_all(descriptor: int, content: bytearray) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
