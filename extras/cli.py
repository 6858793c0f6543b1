"""The verbs of the ``pathfinder`` command that ask the history. The command finds them by their entry point."""

from __future__ import annotations

from typing import Annotated

import typer

from evidence.verbs import cli as verbs
from evidence.verbs.elsewhere import rooted
from extras.publish.cli import publish
from extras.records import cli as records
from extras.why import cli as influence
from ground.show import AsJson, show

PANEL = "Audit"
app = typer.Typer()
lineage = typer.Typer(
    help="Trace results to their inputs, verify that nothing has changed, and ask what was made from what.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@lineage.command()
@app.command(rich_help_panel=PANEL)
def record(
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="A record's id, or a trajectory's for all its records.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show a record's history: upstream line, judge answers, label, filter, split, training example, contamination."""
    from extras.records.trace import trace_record

    show(trace_record(identity), as_json)


app.command(rich_help_panel=PANEL)(influence.why)
app.command(rich_help_panel=PANEL)(publish)
for group in (verbs.app, rooted(records.app), rooted(influence.app)):
    lineage.add_typer(group)
rooted(lineage)
app.add_typer(lineage, name="lineage", rich_help_panel=PANEL)
