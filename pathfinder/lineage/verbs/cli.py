"""The verbs that list, show and compare what the history holds. Each imports what it needs when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pathfinder.lineage.verbs.show import AsJson, show, table

app = typer.Typer()
At = Annotated[str | None, typer.Option("--at", metavar="REV", help="A git revision (default: the files here).")]
"""The option ``--at`` of every verb that reads the history as it was at a revision."""


@app.command(name="list")
def list_(
    kind: Annotated[Literal["stages", "outs", "records", "runs"], typer.Argument(help="What to list.")] = "stages",
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """List the stages, their outs, the records of their runs, or the runs of the training."""
    from pathfinder.lineage.verbs.listing import rows_of

    rows = rows_of(kind, Path(), at)
    show(rows, as_json, table(rows))
