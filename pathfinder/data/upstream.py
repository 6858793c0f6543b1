"""Shared by the readers of upstream formats: the records of a file, and the result of reading one line.

``.jsonl``, ``.json`` (each also ``.gz``) and ``.parquet`` files are read as streams; a ``.json`` file holds a list or
one object. A line that cannot be read does not stop the rest.
"""

from __future__ import annotations

import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow.parquet

from ground import io as files
from ground.io import DataError, lines_of, open_bytes, strict_json, unique_keys
from pathfinder.core.params import Preset

_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")
_CHUNK = 1 << 20
_DETAIL_CHARS = 200
_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)


class UnreadableError(ValueError):
    """A line that cannot become a trajectory: ``reason`` is a short name, ``detail`` shows the value."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = _excerpt(detail)


class Rated(NamedTuple):
    """A rated step: alternative ``completion`` of upstream step ``position``, after ``step_index`` trunk steps."""

    position: int
    completion: int
    step_index: int
    text: str
    rating: int | None


class Unused(NamedTuple):
    """A record of a readable line that cannot become a step; ``detail`` shows the unusable value."""

    position: int
    completion: int
    reason: str
    detail: str = ""


@dataclass(slots=True)
class Reading:
    """One upstream line: its problem, the steps that were followed (the trunk) and the rated steps."""

    source: str
    problem: str
    trunk: list[str] = field(default_factory=list)
    records: list[Rated] = field(default_factory=list)
    set_aside: list[Unused] = field(default_factory=list)  # their own values cannot be used
    lost: list[Unused] = field(default_factory=list)  # the steps before them are unknown
    notes: Counter[str] = field(default_factory=Counter)
    rater: str | None = None

    @property
    def dropped(self) -> Counter[str]:
        """The number of records that were dropped, by reason."""
        return Counter(record.reason for record in self.lost)

    def refuse(self, position: int, completion: int, reason: str, detail: str) -> None:
        """Set one record aside."""
        self.set_aside.append(Unused(position, completion, reason, _excerpt(detail)))


def _excerpt(text: str) -> str:
    """The start of a text, with lone surrogates escaped."""
    return text.encode("utf-8", "backslashreplace").decode()[:_DETAIL_CHARS]


def text_problem(value: Any) -> str | None:
    """The reason why ``value`` cannot be a problem or a step; ``None`` if it can."""
    if value is None:
        return "null_text"
    if not isinstance(value, str):
        return "not_text"
    if not value.strip():
        return "empty_text"
    if value.isascii():  # nearly always, and cheap to check
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return "not_unicode"
    return None


def step_problem(value: Any, preset: Preset) -> str | None:
    """``text_problem`` of a step; the official preset keeps empty steps."""
    reason = text_problem(value)
    return None if preset == "official" and reason == "empty_text" else reason


def data_files(folder: Path) -> list[Path]:
    """The files below ``folder`` that hold records, sorted by path."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name.endswith(_SUFFIXES))


def read_batches(path: Path) -> Iterator[tuple[list[tuple[int, Any]], int]]:
    """The records of ``read_lines`` in lists of about a megabyte, each with the number of bytes read for it.

    Only the file determines where a list ends.
    """
    batch: list[tuple[int, Any]] = []
    weight = before = done = 0
    for line, value, done in read_lines(path):
        batch.append((line, value))
        weight += len(value) if isinstance(value, bytes) else _CHUNK // 256
        if weight >= _CHUNK:
            yield batch, done - before
            batch, weight, before = [], 0, done
    if batch:
        yield batch, done - before


def decoded(value: Any) -> Any:
    """Parse ``value`` if it is JSON text; raises ``UnreadableError`` if that fails."""
    try:
        return strict_json(value) if isinstance(value, bytes) else value
    except ValueError as error:
        raise UnreadableError("not_json", str(error)) from error


def read_lines(path: Path) -> Iterator[tuple[int, Any, int]]:
    """The records of a file as ``(line from 1, value, bytes of the file read so far)``.

    ``decoded`` parses a value, because a ``.jsonl`` line is still text. In a JSON list or a Parquet file, the line is
    the position. For a ``.gz`` file, the bytes are compressed bytes; for a Parquet file, they are its size times the
    share of rows read. Raises ``DataError`` if the file is truncated or damaged.
    """
    try:
        yield from _rows(path) if path.suffix == ".parquet" else _items(path)
    except (EOFError, zlib.error, OSError, UnicodeDecodeError, MemoryError, pyarrow.ArrowException) as error:
        remedy = "it needs more memory" if isinstance(error, MemoryError) else "fetch the file again"
        raise DataError(f"{path}: cannot be read to its end ({error}); {remedy}") from error


def _rows(path: Path) -> Iterator[tuple[int, Any, int]]:
    size = path.stat().st_size
    with pyarrow.parquet.ParquetFile(path) as file:
        rows = (row for batch in file.iter_batches(batch_size=1024) for row in batch.to_pylist())
        for line, row in enumerate(rows, start=1):
            yield line, row, size * line // file.metadata.num_rows


def _items(path: Path) -> Iterator[tuple[int, Any, int]]:
    with open_bytes(path) as handle:
        compressed: IO[bytes] = getattr(handle, "fileobj", handle)
        is_list = path.name.endswith((".json", ".json.gz"))
        listed = enumerate(_JsonStream(path, handle).items(), start=1) if is_list else lines_of(handle, str(path))
        for line, value in listed:
            yield line, value, compressed.tell()


class _JsonStream:
    """JSON text; only a window of it is in memory."""

    def __init__(self, path: Path, handle: IO[bytes]) -> None:
        self._path = path
        self._reader = io.TextIOWrapper(handle, "utf-8-sig", newline="")
        self._text, self._at = "", 0

    def items(self) -> Iterator[Any]:
        """The items of a list, decoded one by one; a single object is one item. Raises ``DataError`` for bad JSON."""
        if self._peek() == "[":
            self._at += 1
            has_more = self._peek() != "]"
            while has_more:
                self._peek()  # decoding starts at a character other than white space
                yield self._decode()
                if self._peek() not in (",", "]"):
                    raise DataError(
                        f"{self._path}: expected a comma or the end of the list after an item; fetch or fix the file"
                    )
                has_more = self._peek() == ","
                self._at += has_more
            self._at += 1
        else:
            yield self._decode()
        if self._peek():
            raise DataError(f"{self._path}: text follows the end of the JSON value; fetch or fix the file")

    def _more(self, amount: int) -> bool:
        chunk = self._reader.read(amount)
        self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)

    def _peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while self._at < len(self._text) or self._more(_CHUNK):
            if self._text[self._at] not in " \t\r\n":
                return self._text[self._at]
            self._at += 1
        return ""

    def _decode(self) -> Any:
        """Read one value. The window grows by doubling, so the work stays linear in the size of the item."""
        amount = _CHUNK
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                is_hopeless = isinstance(error, RecursionError) or len(self._text) > files.LONGEST_LINE
                if is_hopeless or not self._more(amount):
                    raise DataError(f"{self._path}: not valid JSON ({error}); fetch or fix the file") from error
            else:
                # a number at the end of the window may continue
                if end < len(self._text) or isinstance(value, (dict, list, str)) or not self._more(amount):
                    self._at = end
                    return value
            amount *= 2
