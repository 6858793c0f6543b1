"""The rows of a file that is neither JSON nor text: CSV, Parquet, a zipped inspect_ai log, or a Hub data set."""

from __future__ import annotations

import codecs
import csv
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from io import TextIOWrapper
from typing import IO, Any

from ground.io import LONGEST_LINE, DataError, TransientError, parse_json, strict_json, whole
from pathfinder.core.layouts import HUB, SEPARATORS, require_version

Rows = Iterator[tuple[str, Any]]
"""The place for messages, ``NAME: row N`` with N from 1, and the value of each row."""
_ZSTANDARD = 93
LISTS = ("steps", "completions", "labels", "solutions", "candidates", "answers", "messages", "modified_process")
"""Columns that hold lists; a CSV cell holds them as JSON."""


def rows_in_container(name: str, handle: IO[bytes], magic: bytes, suffix: str, lists: Collection[str] | None) -> Rows:
    """The rows of a file that begins with the four bytes ``magic``. Raises ``DataError`` for a broken file.

    In CSV, the cells of the columns ``lists`` (default: all of ``LISTS``) are parsed as JSON.
    """
    if magic == b"PAR1":
        return _of_parquet(name, handle)
    return _of_zip(name, handle) if magic == b"PK\3\4" else _of_csv(name, handle, SEPARATORS[suffix], lists)


def _of_zip(name: str, handle: IO[bytes]) -> Rows:
    """The samples of an inspect_ai log (``.eval``)."""
    try:
        with zipfile.ZipFile(handle) as file:
            names = [entry for entry in file.namelist() if re.fullmatch(r"samples/[^/]+\.json", entry)]
            if not names or "header.json" not in file.namelist():
                raise DataError(f"{name}: a zip file, but no finished log of inspect_ai with samples; give one")
            require_version(name, _entry(name, file, handle, "header.json"))
            for number, entry in enumerate(names, start=1):
                yield f"{name}: row {number}", _entry(name, file, handle, entry)
    except (zipfile.BadZipFile, EOFError, RuntimeError, OSError, struct.error, zlib.error) as error:
        raise DataError(f"{name}: a damaged zip file ({error}); fetch or create the file again") from error


def _entry(name: str, file: zipfile.ZipFile, handle: IO[bytes], entry: str) -> Any:
    """The JSON value of an entry. Logs use Zstandard, which zipfile reads only from Python 3.14 on."""
    at, info = f"{name}: {entry}", file.getinfo(entry)
    if info.compress_type != _ZSTANDARD:
        with file.open(entry) as stream:
            return parse_json(whole(stream, at), at)
    import pyarrow

    handle.seek(info.header_offset + 26)
    handle.seek(sum(struct.unpack("<HH", handle.read(4))), os.SEEK_CUR)
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(handle.read(info.compress_size)), "zstd") as stream:
        content = whole(stream, at)
    if zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {entry!r:.80}")
    return parse_json(content, at)


def _of_csv(name: str, handle: IO[bytes], separator: str, lists: Collection[str] | None) -> Rows:
    """The rows, without empty cells of the columns that hold JSON or the id.

    Spreadsheets use semicolons as separators in locales with a decimal comma.
    """
    csv.field_size_limit(LONGEST_LINE)
    start = handle.read(1 << 16).removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    header = re.sub(rb'"[^"]*"', b"", start).partition(b"\n")[0]
    handle.seek(0)
    separator = next((one for one in (separator, ";", "\t") if one.encode() in header), separator)
    reader = csv.reader(TextIOWrapper(handle, "utf-8-sig", newline=""), delimiter=separator, strict=True)
    rows = filter(None, reader)
    try:
        columns = next(rows, [])
        others = (key for key in columns if key.lower() in LISTS and key.lower() not in columns)
        read = {*LISTS, *others} if lists is None else lists
        empty = {*read, *(key for key in columns if key.lower() == "id")}
        if len({*columns}) < len(columns):
            raise DataError(f"{name}: two columns have the same name; expected a header with different names")
        for number, cells in enumerate(rows, start=1):
            at = f"{name}: row {number}"
            if len(cells) != len(columns):
                raise DataError(f"{at}: {len(cells)} cells, expected {len(columns)} as in the header; correct the row")
            pairs = ((key, cell) for key, cell in zip(columns, cells, strict=True) if cell or key not in empty)
            yield at, {key: _json_cell(at, key, cell, lists is None) if key in read else cell for key, cell in pairs}
    except (csv.Error, UnicodeDecodeError) as error:
        is_csv = isinstance(error, csv.Error)
        line = reader.line_num if is_csv else _undecodable(handle)
        remedy = "correct the line" if is_csv else "convert the file to UTF-8"
        raise DataError(f"{name}: not CSV in UTF-8 (line {line}: {error}); {remedy}") from error


def _undecodable(handle: IO[bytes]) -> int:
    """The number of the first line that is not UTF-8."""
    handle.seek(0)
    return next(
        number for number, line in enumerate(handle, start=1) if line.decode("utf-8", "ignore").encode() != line
    )


def _json_cell(at: str, key: str, cell: str, may_name: bool) -> Any:
    try:
        return strict_json(cell)
    except ValueError as error:
        others = ", rename the column, or name yours by --columns problem=…,solution=…" if may_name else ""
        raise DataError(f"{at}: {key} is {cell!r:.80}, expected a JSON list; write lists as JSON{others}") from error


def _of_parquet(name: str, handle: IO[bytes]) -> Rows:
    """The rows."""
    import polars as pl  # as in ground.io

    try:
        frame = pl.read_parquet(handle)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise DataError(f"{name}: not a readable Parquet file ({reason}); fetch or create the file again") from error
    for number, row in enumerate(frame.iter_rows(named=True), start=1):
        yield f"{name}: row {number}", row


def of_hub(source: str) -> Rows:
    """The rows of a split. Raises ``DataError`` for a wrong name, ``TransientError`` offline."""
    name, *rest = source.removeprefix(HUB).split(":")
    if not name or not 1 <= len(rest) <= 2:
        raise DataError(f"{source}: expected {HUB}OWNER/NAME:SPLIT or {HUB}OWNER/NAME:CONFIG:SPLIT")
    try:
        import datasets
    except ModuleNotFoundError:
        raise DataError(f"{source}: this needs datasets, which is not installed; run `pip install datasets`") from None
    try:
        rows = datasets.load_dataset(name, *rest[:-1], split=rest[-1], trust_remote_code=False)
    except (ConnectionError, TimeoutError) as error:
        raise TransientError(f"{source}: {_first_line(error)}; check the network, or try again") from error
    except (OSError, ValueError, RuntimeError) as error:  # DatasetNotFoundError is an OSError
        raise DataError(f"{source}: {_first_line(error)}; correct the name, the configuration or the split") from error
    for number, row in enumerate(rows, start=1):
        yield f"{source}: row {number}", row


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
