"""docs/audit.md names every verb, and its commands have only options that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extras.cli import lineage as app

PAGE = (Path(__file__).resolve().parents[3] / "docs/audit.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (?:\$ )?pathfinder lineage ([^#\n]*?(?:'[^']*'[^#\n]*)*)(?:  +#.*)?$", PAGE, re.MULTILINE)
cli = CliRunner()


def registered() -> set[str]:
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    commands = [command for group in groups if group for command in group.registered_commands]
    return {str(command.name or getattr(command.callback, "__name__", "")) for command in commands}


def test_the_first_table_names_every_verb() -> None:
    table = PAGE.split("| verb |")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z]+)`", table)) == registered() - {"fetch", "void"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_exist(command: str) -> None:
    verb, *words = shlex.split(command)
    result = cli.invoke(app, [verb, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, verb
    assert [word for word in words if word.startswith("--") and word not in result.output] == []


def test_the_commands_were_found() -> None:
    assert len(COMMANDS) > 12
    assert {"list", "view", "up", "find", "diff", "replay", "check"} <= {
        shlex.split(command)[0] for command in COMMANDS
    }
