"""An append-only journal of answers that survives any kill: what was paid for once is never asked for again.

One JSON object a line, ``{"sum": …, "key": …, "value": …}``; ``sum`` is the first 16 hexadecimal digits of the sha256
of the rest of the line. A batch is one write and one fsync. A line that a kill cut short at the end is removed; damage
anywhere else is refused with its line. A lock keeps a second writer out and vanishes with its process.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from stages.core.io import DataError

_HEAD = b'{"sum": "'
_SUM = 16
_LINE = re.compile(rb'\{"sum": "([0-9a-f]{16})", ("key": "([A-Za-z0-9:._/-]+)", "value": .*\})\n', re.DOTALL)
_KEY = re.compile(r"[A-Za-z0-9:._/-]+")


class Journal:
    """Key -> JSON value, on disk; memory holds the keys and their places alone.

    Opening takes the lock, heals a torn end and checks every line; raises ``DataError`` for damage or a second writer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0
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
        """Give up the lock."""
        self._file.close()

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: str) -> Any:
        """The value of ``key``; ``KeyError`` where nothing was written."""
        start, size = self._places[key]
        return json.loads(os.pread(self._file.fileno(), size, start))["value"]

    def append(self, entries: Mapping[str, Any]) -> None:
        """Write a batch with one fsync; nothing is in the journal before this returns. A known key is refused."""
        if not entries:
            return
        places, content, end = {}, bytearray(), self._end
        for key, value in entries.items():
            if key in self._places:
                raise ValueError(f"{self.path}: {key} is already answered")
            line = _line(key, value)
            places[key] = (end + len(content), len(line))
            content += line
        try:
            _write_all(self._file.fileno(), bytes(content))
        except OSError:
            self._file.truncate(self._end)  # a full disk must not leave half a batch before a later one
            raise
        self._places |= places
        self._end = end + len(content)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"{self.path}: another process is writing this journal; wait for it to end or stop it"
            ) from None

    def _load(self) -> None:
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break  # only the last line can lack its end: a kill cut it short
            match = _LINE.fullmatch(line)
            if match is None or hashlib.sha256(match[2]).hexdigest()[:_SUM].encode() != match[1]:
                raise DataError(
                    f"{self.path}:{number}: damaged (its check sum does not fit); restore the file, or remove this "
                    "line and accept that its answer is asked for again"
                )
            key = match[3].decode()
            if key in self._places:
                raise DataError(f"{self.path}:{number}: {key} stands in the journal twice; remove one of the lines")
            self._places[key] = (end, len(line))
            end += len(line)
        self._file.truncate(end)
        self._end = end


def _line(key: str, value: Any) -> bytes:
    if not _KEY.fullmatch(key):
        raise ValueError(f"journal key {key!r}: expected letters, digits and :._/- alone")
    # ASCII escapes: lone surrogates and line separators in a model's answer stay inside their line.
    body = f'"key": "{key}", "value": {json.dumps(value, allow_nan=False)}}}'.encode()
    return _HEAD + hashlib.sha256(body).hexdigest()[:_SUM].encode() + b'", ' + body + b"\n"


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
