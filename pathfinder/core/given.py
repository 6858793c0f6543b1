"""Files that a person gives to a command: JSON lines, one JSON list or plain text, from a file or standard input."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from ground.io import DataError, open_bytes, parse_json, parse_jsonl, whole


@contextmanager
def open_given(source: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name for messages and a seekable handle of a file or, for ``-``, of standard input.

    Raises ``DataError`` if it is no file.
    """
    if source == "-":
        # a process may be started with its standard input closed
        yield "standard input", BytesIO(sys.stdin.buffer.read() if sys.stdin else b"")
    elif Path(source).is_file():
        with open_bytes(Path(source)) as handle:
            yield source, handle
    else:
        problem = "a folder" if Path(source).is_dir() else "no such file"
        raise DataError(f"{source}: {problem}; give a file, or - for standard input")


def first_character(handle: IO[bytes]) -> bytes:
    """The first byte of the content, empty if there is none; the handle stays at its start.

    White space and a mark of byte order are no content.
    """
    first = handle.read(1 << 16).removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    handle.seek(0)
    return first


def rows_in(name: str, handle: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Yield ``("NAME: row N", value)``, N from 1, of JSON lines or of one JSON list.

    Raises ``DataError`` with the row for what is not valid JSON.
    """
    is_list = first_character(handle) == b"["
    rows = enumerate(parse_json(whole(handle, name), name), start=1) if is_list else parse_jsonl(handle, name)
    return ((f"{name}: row {number}", row) for number, row in rows)


def text_in(name: str, handle: IO[bytes]) -> str:
    """The whole text. Raises ``DataError`` if it is not UTF-8."""
    try:
        return whole(handle, name).removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: neither JSON nor UTF-8 text ({error}); convert it to UTF-8") from error
