"""What every upstream reader shares: streaming the lines of a file, and what one line turns into.

A file is read record by record; one that cannot be read is set aside with file, line and reason, and the rest goes on.
``.jsonl`` and ``.json`` (each also ``.gz``) and ``.parquet`` are read; a ``.json`` file holds a list or one object.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import pyarrow.parquet

from pathfinder.core.io import DataError, open_bytes

Preset = Literal["repaired", "official"]
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")
_CHUNK = 1 << 20
_DETAIL_CHARS = 200


class UnreadableError(ValueError):
    """A whole line that cannot become a trajectory: ``reason`` is a short name, ``detail`` says what was seen."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = printable(detail)


class Rated(NamedTuple):
    """One rated step: at upstream step ``position``, alternative ``completion``, after ``step_index`` trunk steps."""

    position: int
    completion: int
    step_index: int
    text: str
    rating: int | None


@dataclass(frozen=True, slots=True)
class SetAside:
    """One record of a readable line that is not usable."""

    position: int
    completion: int
    reason: str
    detail: str


@dataclass(slots=True)
class Reading:
    """One upstream line: its problem, the steps that were followed and the records beside them."""

    source: str
    problem: str
    trunk: list[str] = field(default_factory=list)
    records: list[Rated] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def refuse(self, position: int, completion: int, reason: str, detail: Any = "") -> None:
        """Set one record aside."""
        self.set_aside.append(SetAside(position, completion, reason, printable(str(detail))))


def printable(text: str) -> str:
    """A short form that any table can hold."""
    return text.encode("utf-8", "backslashreplace").decode()[:_DETAIL_CHARS]


def text_problem(value: Any) -> str | None:
    """Why ``value`` cannot be a problem or a step, or ``None`` where it can."""
    if value is None:
        return "null_text"
    if not isinstance(value, str):
        return "not_text"
    if not value.strip():
        return "empty_text"
    if value.isascii():  # nearly always, and quick to tell
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return "not_unicode"
    return None


def data_files(folder: Path) -> list[Path]:
    """The files below ``folder`` that hold records, sorted by path."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name.endswith(SUFFIXES))


def read_records(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield ``(line from 1, value)``, ``UnreadableError`` as the value of a line that is not JSON.

    In a JSON list or a Parquet file the line is the position. A file that breaks off raises ``DataError``.
    """
    return ((line, decoded(value)) for line, value in _read(path))


def read_batches(path: Path) -> Iterator[list[tuple[int, Any]]]:
    """What ``read_records`` yields, not yet ``decoded``, in lists of about a megabyte that depend on the file alone."""
    batch: list[tuple[int, Any]] = []
    weight = 0
    for line, value in _read(path):
        batch.append((line, value))
        weight += len(value) if isinstance(value, bytes) else _CHUNK // 256
        if weight >= _CHUNK:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def decoded(value: Any) -> Any:
    """The value of a line that may still be JSON text; ``UnreadableError``, returned, where it is not JSON."""
    if not isinstance(value, bytes):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        return UnreadableError("not_json", str(error))


def _read(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        if path.suffix == ".parquet":
            yield from _parquet_rows(path)
        elif path.name.endswith((".json", ".json.gz")):
            with open_bytes(path) as handle:
                yield from _list_items(path, handle)
        else:
            with open_bytes(path) as handle:
                yield from _lines(handle)
    except (EOFError, zlib.error, OSError, pyarrow.ArrowInvalid) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}); fetch the file again") from error


def _lines(handle: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(handle, start=1) if line.strip())


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    number = 0
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                yield number, row


def _list_items(path: Path, handle: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """The items of a JSON list, decoded one by one from a growing window; a single object counts as one item."""
    decoder = json.JSONDecoder()
    window = _Window(path, handle)
    first = window.skip(" \t\r\n\ufeff")
    if first != "[":
        yield 1, window.decode(decoder)
        window.expect_end()
        return
    window.drop(1)
    number = 0
    while window.skip(" \t\r\n") != "]":
        number += 1
        yield number, window.decode(decoder)
        if window.skip(" \t\r\n") == ",":
            window.drop(1)
        elif window.skip(" \t\r\n") != "]":
            raise DataError(
                f"{path}: item {number} is followed by neither a comma nor the end of the list; mend the file"
            )
    window.drop(1)
    window.expect_end()


class _Window:
    def __init__(self, path: Path, handle: IO[bytes]) -> None:
        self._path, self._handle = path, handle
        self._bytes, self._text, self._at, self._ended = b"", "", 0, False

    def _more(self, amount: int = _CHUNK) -> bool:
        chunk = self._handle.read(amount)
        self._ended = not chunk
        self._bytes += chunk
        try:
            text, self._bytes = self._bytes.decode(), b""
        except UnicodeDecodeError as error:
            if self._ended or error.end < len(self._bytes):
                raise DataError(f"{self._path}: not UTF-8 ({error}); fetch the file again") from error
            text, self._bytes = self._bytes[: error.start].decode(), self._bytes[error.start :]
        self._text = self._text[self._at :] + text
        self._at = 0
        return not self._ended

    def skip(self, characters: str) -> str:
        while True:
            while self._at < len(self._text) and self._text[self._at] in characters:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def drop(self, count: int) -> None:
        self._at += count

    def decode(self, decoder: json.JSONDecoder) -> Any:
        """One value; the window grows by doubling, so that the work stays linear in the size of the item."""
        amount = _CHUNK
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if isinstance(error, RecursionError) or not self._more(amount):
                    raise DataError(f"{self._path}: not valid JSON ({error}); fetch or mend the file") from error
            else:
                if end < len(self._text) or isinstance(value, (dict, list, str)) or not self._more(amount):
                    self._at = end
                    return value
            amount *= 2

    def expect_end(self) -> None:
        if self.skip(" \t\r\n"):
            raise DataError(f"{self._path}: text follows the end of the JSON value; mend the file")
