"""The verb ``pathfinder run`` without the others.

Run     python -m flows.reproduce [TARGET …] [--force] [--pull] [--jobs N]
"""

from __future__ import annotations

import typer

from flows.cli import run
from ground.text import errors_without_traceback

if __name__ == "__main__":
    helps = {"help_option_names": ["-h", "--help"]}
    command = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=helps)
    command.command()(run)
    with errors_without_traceback():
        command(prog_name="python -m flows.reproduce")
