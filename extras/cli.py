"""The verbs of the ``pathfinder`` command that ask the history. The command finds them by their entry point."""

from __future__ import annotations

import typer

from evidence import __main__ as evidence
from extras.publish.cli import publish
from extras.why.cli import why

PANEL = "Audit"
app = typer.Typer()
app.command(rich_help_panel=PANEL)(evidence.record)
app.command(rich_help_panel=PANEL)(why)
app.command(rich_help_panel=PANEL)(publish)
app.add_typer(evidence.app, name="lineage", rich_help_panel=PANEL)
