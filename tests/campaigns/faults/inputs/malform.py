"""Malformed documents made from a valid one: of the file, of its text, of its rows, of each field and at random."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.campaigns.faults.inputs.documents import MISSING, Document, Keys, changed, value_at

LONG = 40_000
"""Bytes of a line that is too long while the limit is lowered to half of it."""
_DEEP = 100_000
_DIGITS = 5_000


@dataclass(frozen=True, slots=True)
class Malformed:
    """A malformed document: its kind, the place in words, and its content or what puts it at a path.

    ``row`` is the row, from 1, that an error must name; ``None`` if no row of the file is to blame. ``is_long`` asks
    for the lowered limit of a line.
    """

    kind: str
    at: str
    content: bytes | Callable[[Path], None]
    row: int | None = None
    is_long: bool = False

    def put(self, path: Path) -> None:
        """Write it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(self.content):
            self.content(path)
        else:
            path.write_bytes(self.content)


def malformed(document: Document, random: Random) -> Iterator[Malformed]:
    """Every malformation of a document; ``random`` decides rows and places where there is a choice."""
    yield from of_file(document.content())
    yield from _of_text(document, random)
    yield from _of_rows(document)
    for keys in document.fields:
        yield from _of_field(document, keys, random)


_PIECES = (b'"', b"{", b"}", b"[", b"]", b",", b":", b"\n", b"null", b"1e999", b"\\u0000")
_SEPARATOR = "\u2028".encode()


def edited(document: Document, random: Random, count: int) -> Iterator[Malformed]:
    """``count`` copies with one to three random edits; the first byte, which decides between JSON and text, stays."""
    valid = document.content()
    # The YAML parsers differ in whether U+2028 ends a line.
    pieces = _PIECES if document.container == "yaml" else (*_PIECES, _SEPARATOR)
    for _ in range(count):
        content, edits = valid, []
        for _ in range(random.randint(1, 3)):
            start, length = random.randint(1, len(content)), random.randint(0, 12)
            piece = random.choice(pieces) if random.random() < 0.5 else random.randbytes(random.randint(0, 3))
            content = content[:start] + piece + content[start + length :]
            edits.append(f"{length} bytes at {start} replaced by {piece!r}")
        yield Malformed("random edits", ", then ".join(edits), content)


def of_file(content: bytes) -> Iterator[Malformed]:
    """Files of other kinds in the place of one with this content."""
    packed = gzip.compress(content, mtime=0)
    yield Malformed("missing file", "", lambda _: None)
    yield Malformed("folder in its place", "", lambda path: path.mkdir())
    yield Malformed("link to itself", "", lambda path: path.symlink_to(path.name))
    for kind, other in {
        "empty file": b"",
        "white space only": b" \n\t\n \r\n",
        "gzip without its name": packed,
        "zip archive": b"PK\x03\x04" + content,
        "picture": b"\x89PNG\r\n\x1a\n" + content,
        "page of HTML": b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n",
        "pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n",
        "table of commas": b"id,problem,steps\n1,1+1?,2\n",
        "pickle": b"\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins\x94.",
        "NUL bytes only": bytes(512),
        "noise": bytes(Random(1).randrange(256) for _ in range(512)),
    }.items():
        yield Malformed(kind, "", other)


def _of_text(document: Document, random: Random) -> Iterator[Malformed]:
    content = document.content()
    text = content.decode()
    for name in ("utf-8-sig", "utf-16", "utf-16-be", "utf-32", "cp037"):
        yield Malformed(f"encoding {name}", "", text.encode(name))
    yield Malformed("two marks of byte order", "", b"\xef\xbb\xbf\xef\xbb\xbf" + content)
    yield Malformed("lines end with CRLF", "", content.replace(b"\n", b"\r\n"))
    yield Malformed("lines end with CR", "", content.replace(b"\n", b"\r"))
    yield Malformed("no end of the last line", "", content.rstrip(b"\n"))
    yield Malformed("cut in the middle", "", content[: len(content) // 2])
    yield Malformed("text after the end", "", content + b"the end")
    yield Malformed("bytes after the end", "", content + b"\x00\xff")
    yield Malformed("the document twice", "", content + content)
    for mark in '{}[]:,"':
        places = [found.end() for found in re.finditer(re.escape(mark), text)]
        if places and document.container != "yaml":
            place = random.choice(places)
            yield Malformed(f"cut after {mark}", f"byte {place}", content[:place])
            yield Malformed(f"without one {mark}", f"byte {place}", content[: place - 1] + content[place:])
            yield Malformed(f"{mark} twice", f"byte {place}", content[:place] + mark.encode() + content[place:])
    for kind, raw in {
        "invalid UTF-8": b"\xc3\x28",
        "lone surrogate in bytes": b"\xed\xa0\x80",
        "overlong slash": b"\xc0\xaf",
        "NUL byte": b"\x00",
        "escape byte": b"\x1b[2J",
        "DEL": b"\x7f",
        "vertical tab": b"\x0b",
        "separator U+2028": "\u2028".encode(),
        "separator U+0085": "\u0085".encode(),
        "override of direction": "\u202e".encode(),
        "private character": "\U0010fffd".encode(),
        "half an escape": b"\\u12",
        "unknown escape": b"\\x41",
    }.items():
        place = _in_a_text(text, random)
        yield Malformed(f"{kind} in a text", f"byte {place}", content[:place] + raw + content[place:])
    if document.container == "yaml":
        return
    yield Malformed("single quotes", "", content.replace(b'"', b"'"))
    yield Malformed("comment", "", b"// comment\n" + content)
    yield Malformed("names of Python", "", content.replace(b": ", b": None or ", 1))
    yield Malformed("comma before the end", "", content.replace(b"}", b",}", 1))


def _in_a_text(text: str, random: Random) -> int:
    """A place inside the text of a string value."""
    places = [found.start(1) + 1 for found in re.finditer(r': "?([A-Za-z ][A-Za-z+?. ]{2,})', text)]
    return random.choice(places or [len(text) // 2])


def _of_rows(document: Document) -> Iterator[Malformed]:
    rows = list(document.rows)
    last = len(rows)
    row_of = {"lines": last, "list": last}.get(document.container)
    line_of = last if document.container == "lines" else None  # a list that is no JSON has no rows
    values: dict[str, Any] = {
        "null": None,
        "number": 1,
        "text": "row",
        "truth value": True,
        "list": [],
        "list around it": [rows[-1]],
        "empty object": {},
        "NaN": float("nan"),
    }
    for kind, value in values.items():
        yield Malformed(f"row is {kind}", f"row {last}", document.content([*rows[:-1], value]), row_of)
    if document.container != "yaml":
        for kind, raw in {
            "nested lists": b"[" * _DEEP,
            "nested objects": b'{"a":' * _DEEP,
            "balanced nesting": b"[" * _DEEP + b"]" * _DEEP,
            "endless integer": b"1" * _DIGITS,
            "hexadecimal number": b"0x1F",
            "leading zero": b"012",
            "empty item": b"",
        }.items():
            content = document.content([*rows[:-1], "RAW"]).replace(b'"RAW"', raw)
            yield Malformed(f"row is {kind}", f"row {last}", content, line_of if raw else None)
        first = document.content([rows[0]])
        again = first.replace(b"{", b'{"' + next(iter(rows[0])).encode() + b'": 0, ', 1)
        yield Malformed(
            "first key twice", "row 1", again + (document.content(rows[1:]) if last > 1 and row_of else b"")
        )
    if document.container in ("lines", "list"):
        yield Malformed("row twice", f"row {last}", document.content([*rows, rows[-1]]))
        yield Malformed("other order of keys", "", document.content([dict(reversed(row.items())) for row in rows]))
    if document.container == "lines":
        yield Malformed("blank lines", "", document.content().replace(b"\n", b"\n\n \t\n"))
        yield Malformed("two rows in a line", "row 1", document.content().replace(b"\n", b" ", 1))
        yield Malformed("indented", "", "\n".join(json.dumps(row, indent=1) for row in rows).encode())
    yield Malformed("unknown key", f"row {last}", document.content([*rows[:-1], {**rows[-1], "\x1b[31m": 1}]), row_of)
    for kind, content in document.texts.items():
        yield Malformed(kind, "", content)
    for kind, own in document.own.items():
        yield Malformed(kind, "", document.content(own))


VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "minus one": -1,
    "minus two": -2,
    "large number": 2**40,
    "over 64 bits": 2**70,
    "fraction": 0.5,
    "whole fraction": 1.0,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "empty text": "",
    "blank text": " \t\n",
    "digits as text": "1",
    "other text": "other",
    "NUL in a text": "a\x00b",
    "control characters": "a\x1b[2Jb\x07\x9b1m",
    "CRLF in a text": "a\r\nb",
    "U+2028 in a text": "a\u2028b\u2029c\u0085d",
    "lone surrogate": "a\ud800b",
    "tags of labels": "<+><|im_end|><extra>",
    "a path upwards": "../../etc/passwd",
    "a long text": "x" * LONG,
    "empty list": [],
    "list of null": [None],
    "list of numbers": [1, 2],
    "list of texts": ["a", "b"],
    "list of mixed types": ["a", 1, None],
    "nested list": [[["a"]]],
    "empty object": {},
    "object with a text": {"text": "a"},
}
"""Values that take the place of a field's value."""


def _of_field(document: Document, keys: Keys, random: Random) -> Iterator[Malformed]:
    number = random.randrange(len(document.rows))
    row_of = number + 1 if document.container in ("lines", "list") else None
    line_of = number + 1 if document.container == "lines" else None
    name = ".".join(map(str, keys))

    def made(kind: str, row: Any, is_long: bool = False) -> Malformed:
        rows: Sequence[Any] = [*document.rows[:number], row, *document.rows[number + 1 :]]
        return Malformed(kind, name, document.content(rows), row_of, is_long)

    row = document.rows[number]
    value = value_at(row, keys)
    if value is not MISSING:
        yield made("field missing", changed(row, keys, MISSING))
        if isinstance(keys[-1], str):
            yield made("key in capitals", _renamed(row, keys, keys[-1].upper()))
            yield made("space after the key", _renamed(row, keys, f"{keys[-1]} "))
    parent = value_at(row, keys[:-1]) if len(keys) > 1 else row
    if parent is MISSING:
        return
    for kind, other in VALUES.items():
        yield made(f"value is {kind}", changed(row, keys, other), kind == "a long text")
    if isinstance(value, list) and value:
        for kind in ("null", "zero", "true", "empty text", "lone surrogate", "empty list", "empty object", "NaN"):
            place = random.randrange(len(value))
            yield made(f"an item is {kind}", changed(row, (*keys, place), VALUES[kind]))
        yield made("an item more", changed(row, keys, [*value, value[-1]]))
        yield made("an item less", changed(row, keys, value[:-1]))
    if document.container != "yaml" and value is not MISSING and isinstance(keys[-1], str):
        marked = json.dumps(keys[-1]).encode() + b": "
        doubled = document.content([*document.rows[:number], changed(row, keys, "MARK"), *document.rows[number + 1 :]])
        both = json.dumps(value).encode() + b", " + marked + json.dumps(value).encode()
        yield Malformed("field twice", name, doubled.replace(b'"MARK"', both), line_of)
        for kind, raw in {"endless integer": b"9" * _DIGITS, "overflow": b"1e999", "nesting": b"[" * _DEEP}.items():
            yield Malformed(f"value is {kind}", name, doubled.replace(b'"MARK"', raw), line_of)


def _renamed(row: Any, keys: Keys, name: str) -> Any:
    return changed(changed(row, keys, MISSING), (*keys[:-1], name), value_at(row, keys))
