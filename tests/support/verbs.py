"""The whole ``pathfinder`` command, with the verbs that need a clone: a walk over them, and the check of their JSON."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

import flows.cli
import pathfinder.cli

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| `([^`]+)` \| ([a-z ]+) \| (.*?) ?\| (.*?) ?\|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


def whole_app() -> typer.Typer:
    """The command as ``main`` builds it in a clone, without a change of the module's own."""
    whole = copy.copy(pathfinder.cli.app)
    whole.registered_commands = [*pathfinder.cli.app.registered_commands, *flows.cli.app.registered_commands]
    return whole


def verbs(command: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words of every verb, such as ("lineage", "up"), and its command."""
    command = command or get_command(whole_app())
    for name in command.list_commands(None):  # which joins the verbs of the other wings
        inner = command.commands[name]
        if hasattr(inner, "commands"):
            yield from verbs(inner, (*words, name))
        else:
            yield (*words, name), inner


def documented() -> dict[str, tuple[str, set[str], set[str]]]:
    """The table of docs/commands.md: for each command its form, its keys, and the keys that only some rows have."""
    found: dict[str, tuple[str, set[str], set[str]]] = {}
    for command, form, keys, rare in _ROW.findall((ROOT / "docs/commands.md").read_text(encoding="utf-8")):
        named = set(_CODE.findall(keys))
        found[command] = (form, found[named.pop()][1] if "the keys of" in keys else named, set(_CODE.findall(rare)))
    return found


def checked(command: str, text: str) -> Any:
    """The value that a command printed with ``--json``: a document or JSON Lines, with the keys of docs/commands.md."""
    form, keys, rare = documented()[command]
    value = [_parsed(line) for line in text.splitlines()] if form == "lines" else _parsed(text)
    if form in ("object", "list", "lines"):
        rows = [value] if form == "object" else value
        assert isinstance(rows, list), f"{command}: expected a {form}, found {value!r}"
        assert rows, f"{command}: no row to look at"
        for row in rows:
            assert keys <= row.keys() <= keys | rare, (
                f"{command}: {sorted(row.keys() ^ keys)} differ from docs/commands.md"
            )
    return value


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
