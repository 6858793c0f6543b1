"""A format: a valid document of it, what its fields may hold, and its reader."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

MISSING: Any = object()
"""The value of a key that a row does not have."""
Keys = tuple[str | int, ...]
View = list[dict[Keys, Any]]
"""The result of reading: per row, the value of each field that the reader uses."""


def is_text(value: Any) -> bool:
    """True if a value is a text that a file can hold."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def is_some_text(value: Any) -> bool:
    """True if a value is a text with at least one character that is no white space."""
    return is_text(value) and bool(value.strip())


def is_whole(value: Any) -> bool:
    """True if a value is an integer; a truth value is not."""
    return type(value) is int


def is_sha256(value: Any) -> bool:
    """True if a value is a SHA-256 digest in lower-case hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def or_nothing(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Accept also null and a key that the row does not have."""
    return lambda value: value in (MISSING, None) or accepts(value)


def null_as_missing(value: Any) -> Any:
    """Read null as a key that the row does not have."""
    return MISSING if value is None else value


@dataclass(frozen=True, slots=True)
class Field:
    """The values that a field may have (``MISSING`` among them if it may be left out), and how each is read.

    A value that is read as ``MISSING`` has a default, which is not compared.
    """

    accepts: Callable[[Any], bool]
    reads: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True, slots=True)
class Document:
    """A format with its valid document.

    ``read`` returns the view of a file. ``together`` is what several valid rows mean, ``None`` if they contradict one
    another, for example by equal ids. ``own`` are malformed rows that only this format knows, by kind, and ``texts``
    whole files. A strict format refuses unknown keys. With ``may_refuse``, ``fields`` describe the values only
    roughly: a refusal is always right.
    """

    name: str
    file: str
    rows: tuple[dict[str, Any], ...]
    fields: Mapping[Keys, Field]
    read: Callable[[Path], View]
    container: Literal["lines", "list", "object", "yaml"] = "lines"
    together: Callable[[View], View | None] = lambda view: view
    own: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    texts: Mapping[str, bytes] = field(default_factory=dict)
    is_strict: bool = False
    may_refuse: bool = False
    may_be_empty: bool = False

    def content(self, rows: Sequence[Any] | None = None) -> bytes:
        """The bytes of a file with ``rows``."""
        given = self.rows if rows is None else rows
        if self.container == "yaml":
            return _yaml(given[0])
        if self.container == "lines":
            return "".join(json.dumps(row) + "\n" for row in given).encode()
        return json.dumps(list(given) if self.container == "list" else given[0], indent=1).encode()

    def expected(self, rows: Sequence[Any]) -> View | None:
        """The expected result of reading ``rows``; ``None`` if it must refuse them."""
        if not (rows or self.may_be_empty):
            return None
        view = [self._row(row) for row in rows]
        whole = [row for row in view if row is not None]
        return self.together(whole) if len(whole) == len(view) else None

    def _row(self, row: Any) -> dict[Keys, Any] | None:
        if not isinstance(row, dict) or (self.is_strict and not row.keys() <= self.rows[0].keys()):
            return None
        values = {keys: value_at(row, keys) for keys in self.fields}
        if not all(self.fields[keys].accepts(value) for keys, value in values.items()):
            return None
        return {keys: self.fields[keys].reads(value) for keys, value in values.items()}


def _yaml(value: Any) -> bytes:
    try:
        return bytes(yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False).encode())
    except UnicodeEncodeError:  # the writer in C has no lone surrogates
        return yaml.safe_dump(value, allow_unicode=True, sort_keys=False).encode("utf-8", "surrogatepass")


def value_at(row: Any, keys: Keys) -> Any:
    """The value below ``keys``, or ``MISSING``."""
    found = row
    for key in keys:
        if isinstance(key, int) != isinstance(found, list):
            return MISSING
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return found


def changed(row: Any, keys: Keys, value: Any) -> Any:
    """A copy of ``row`` with a different value below ``keys``, or without it for ``MISSING``."""
    copy: Any = list(row) if isinstance(row, list) else dict(row)
    head, rest = keys[0], keys[1:]
    if rest:
        copy[head] = changed(row[head], rest, value)
    elif value is MISSING:
        del copy[head]
    else:
        copy[head] = value
    return copy
