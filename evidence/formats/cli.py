"""The verbs that show the history to other tools and to people: ``export`` and ``render``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.formats.export import Format, exported
from evidence.verbs.cli import At
from evidence.verbs.completion import outs
from ground.io import DataError
from ground.show import AsJson, show

app = typer.Typer()
Target = Annotated[
    str | None,
    typer.Argument(
        help="An output, such as models/full, or a figure, such as reports/tables.json#/results/0.",
        autocompletion=outs,
    ),
]


@app.command()
def export(
    form: Annotated[
        Format,
        typer.Option("--format", help="The format; docs/audit.md describes each."),
    ],
    target: Target = None,
    output: Annotated[Path | None, typer.Option(help="The file to write (default: standard output).")] = None,
    base: Annotated[str, typer.Option(help="crate: the address under which the project folder is published.")] = "",
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Write the records in a format of other tools; the same records give the same bytes."""
    from evidence.formats.lineage import read_lineage
    from evidence.verbs.revision import at as at_revision
    from ground.io import write_text

    _require_file(output)
    with at_revision(Path(), at) as root:
        text = exported(read_lineage(root, target), form, base)
    found = {"format": form, "bytes": len(text.encode())}
    if output is not None:
        write_text(output, text)
        show({**found, "file": output.as_posix(), "content": None}, as_json, ())
    elif as_json:
        show({**found, "file": None, "content": text}, as_json)
    else:
        sys.stdout.write(text)


@app.command()
def render(
    target: Target = None,
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("lineage.html"),
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page of the history, from a figure to the lines of the sources. It loads nothing."""
    from evidence.formats.page.render import render as rendered
    from evidence.verbs.revision import at as at_revision
    from ground.io import write_text

    _require_file(output)
    with at_revision(Path(), at) as root:
        page = rendered(root, target)
    write_text(output, page)
    show({"page": output.as_posix(), "bytes": len(page.encode())}, as_json)


def _require_file(output: Path | None) -> None:
    if output is not None and output.is_dir():
        raise DataError(f"{output}: is a folder; give --output the name of a file in it")
