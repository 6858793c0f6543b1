"""Compare the content that a reader finds in a malformed document with what the document says."""

from __future__ import annotations

import codecs
import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from ground import io
from ground.io import PathfinderError
from ground.text import printable
from tests.campaigns.faults.inputs.documents import MISSING, Document, View
from tests.campaigns.faults.inputs.malform import LONG, Malformed

LONGEST_MESSAGE = 2_000
"""Characters of the longest message, so that no input fills a terminal or a log."""
_REMEDY = re.compile(
    r"\b(fetch|correct|remove|restore|give|point|add|delete|split|convert|create|run|re-run|use|check|replace|set|write|make|"
    r"fix|look|see|expected|show|restart|merge)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome: ``refused`` or ``read``, and the problem in words if that is wrong."""

    outcome: str
    problem: str = ""


def judge(document: Document, one: Malformed, folder: Path) -> Verdict:
    """Read a malformed document below the empty folder ``folder``."""
    path = folder / document.file
    one.put(path)
    before = _state(folder)
    expected, may_refuse = _expected(document, one)
    try:
        with _limit(one.is_long):
            view = document.read(path)
    except PathfinderError as error:
        problem = _message_problem(str(error), path, one)
        if expected is not None and not (may_refuse or document.may_refuse):
            problem = f"refused although it is valid: {error}"
        verdict = Verdict("refused", problem)
    except Exception as error:  # whatever ends in a traceback
        return Verdict("traceback", f"{type(error).__name__}: {str(error)[:200]}")
    else:
        verdict = Verdict("read", _view_problem(view, expected))
    if _state(folder) != before:
        return Verdict(verdict.outcome, "the reader changed files")
    return verdict


def _expected(document: Document, one: Malformed) -> tuple[View | None, bool]:
    """The content that must be read (``None``: nothing), and whether a refusal is right too."""
    if callable(one.content):
        return None, True
    if one.is_long and document.container in ("lines", "list"):
        found, _ = _said(document, one.content)
        return found, True
    return _said(document, one.content)


def _said(document: Document, content: bytes) -> tuple[View | None, bool]:
    if document.file.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError):
            return None, True
    rows, is_odd = rows_of(document, content)
    return (None if rows is None else document.expected(rows)), is_odd


def rows_of(document: Document, content: bytes) -> tuple[list[Any] | None, bool]:
    """The rows of a file by a strict decoder of its own, and whether a refusal of them is right too.

    ``None`` if it is not valid. Duplicate keys are not valid.
    """
    text, is_odd = _decoded(content)
    if text is None:
        return None, True
    try:
        if document.container == "yaml":
            return [yaml.safe_load(text)], is_odd
        if document.container == "object":
            return [_strict(text)], is_odd
        if text.lstrip(" \t\r\n").startswith("["):
            whole = _strict(text)
            return (whole if document.container == "list" else None), is_odd
    except (ValueError, RecursionError, yaml.YAMLError):
        if document.container != "list":
            return None, is_odd
    try:
        lines = [line for line in text.split("\n") if line.strip(" \t\r\n")]
        rows = [_strict(line) for line in lines]
    except (ValueError, RecursionError):
        try:
            return [_strict(text)], is_odd if document.container == "list" else True
        except (ValueError, RecursionError):
            return None, is_odd
    return rows, is_odd


def _decoded(content: bytes) -> tuple[str | None, bool]:
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode(), False
    except UnicodeDecodeError:
        return None, True


def _strict(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _view_problem(view: View, expected: View | None) -> str:
    if expected is None:
        return f"read silently as {repr(view)[:300]}"
    # a value that was left out may be read as any default
    said = [{keys: row[keys] for keys in row if row[keys] is not MISSING} for row in expected]
    same = len(view) == len(said)
    shown = [{keys: row.get(keys) for keys in one} for row, one in zip(view, said, strict=False)]
    if same and repr(shown) == repr(said):
        return ""
    return f"read as {repr(view)[:300]}, which says {repr(expected)[:300]}"


def _message_problem(message: str, path: Path, one: Malformed) -> str:
    if path.name not in message and path.parent.as_posix() not in message:
        return f"the message names no file: {message}"
    is_chain = "a line before it was edited" in message  # then the next line's link is the first wrong one
    if one.row is not None and not is_chain and not re.search(rf"(:|row |line ){one.row}\b", message):
        return f"the message does not name row {one.row}: {message}"
    if not _REMEDY.search(message):
        return f"the message has no remedy: {message}"
    if len(message) > LONGEST_MESSAGE:
        return f"the message has {len(message)} characters: {message[:200]}"
    return "" if printable(message) == message else f"the message has control characters: {message!r}"


@contextmanager
def _limit(is_long: bool) -> Iterator[None]:
    if not is_long:
        yield
        return
    with patch.object(io, "LONGEST_LINE", LONG // 2):
        yield


def _state(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*") if not path.is_dir()}
