"""Notes from a stage to the recorder of its run. Without a recorder nothing happens, so that the method runs anywhere.

A recorder calls ``listen``. It sets ``NOTES`` and ``REPORTER`` in the environment, so processes that a stage starts
reach it as well.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ground.io import DataError

NOTES = "RECORDER_NOTES"
"""A file of JSON objects, one per line, for the record."""
REPORTER = "_RECORDER_REPORTER"
"""``module:function`` that reports a process, given its name. The underscore keeps it out of the record."""


_journals: Callable[[Path, Sequence[Sequence[int]]], None] | None = None
_code: Callable[[str], str] | None = None


def listen(
    *,
    journals: Callable[[Path, Sequence[Sequence[int]]], None] | None = None,
    code: Callable[[str], str] | None = None,
) -> None:
    """Let a recorder answer ``journal_used`` or ``code_digest`` in this process from now on."""
    global _journals, _code
    _journals, _code = journals or _journals, code or _code


def note(name: str, value: Any) -> None:
    """Add a JSON value to the record of the stage that runs in this process or started it."""
    if NOTES in os.environ:
        with Path(os.environ[NOTES]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({name: value}, allow_nan=False) + "\n")


def journal_used(path: Path, ranges: Sequence[Sequence[int]]) -> None:
    """Add the entries of a journal that this process used, as ranges of bytes (start, end)."""
    if _journals is not None:
        _journals(path, ranges)


def report_as(name: str) -> None:
    """Report this process to the stage that started it, under a name without a hyphen."""
    if where := os.environ.get(REPORTER):
        module, _, function = where.partition(":")
        getattr(importlib.import_module(module), function)(name)


def code_digest(stage: str) -> str:
    """The sha256 of the code that determines a stage's result: work that different code left unfinished is never
    resumed.

    Raises ``DataError`` if no recorder listens.
    """
    if _code is None:
        raise DataError(f"{stage}: unfinished work can be kept only in a stage; start it with `dvc repro {stage}`")
    return _code(stage)


def joined(ranges: Iterable[Sequence[int]]) -> list[list[int]]:
    """Ranges (start, end) in order; ranges that touch or overlap become one."""
    found: list[list[int]] = []
    for start, end in sorted((start, end) for start, end in ranges):
        if found and start <= found[-1][1]:
            found[-1][1] = max(end, found[-1][1])
        else:
            found.append([start, end])
    return found
