"""The whole ``pathfinder`` command, with the verbs that need a clone, and a walk over its verbs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

import flows.cli
import pathfinder.cli


def whole_app() -> typer.Typer:
    """The command as ``main`` builds it in a clone, without a change of the module's own."""
    whole = copy.copy(pathfinder.cli.app)
    whole.registered_commands = [*pathfinder.cli.app.registered_commands, *flows.cli.app.registered_commands]
    return whole


def verbs(command: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words of every verb, such as ("lineage", "up"), and its command."""
    command = command or get_command(whole_app())
    for name, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from verbs(inner, (*words, name))
        else:
            yield (*words, name), inner
