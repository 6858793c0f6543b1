"""The verbs about records: ``down``, ``items`` and ``forget``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evidence.verbs.cli import At
from evidence.verbs.completion import runs
from ground.show import AsJson, offered, show

app = typer.Typer()
_BENCHMARKS = ("processbench", "prmbench", "search", "best_of_n_min", "sample")
_HELP = (
    "The id of a record or a line, a content id, item:X for the records with the problem of a benchmark item, run:X, "
    "retried:1, or a column of the index, such as licence:X, rater:X, source:X, file:X, mixes:X or reason:X."
)


def _benchmarks(incomplete: str) -> list[str]:
    return offered(incomplete, _BENCHMARKS)


@app.command()
def down(
    selector: Annotated[str, typer.Argument(metavar="WHAT", help=f"A file or folder, or records: {_HELP}")],
    ids: Annotated[bool, typer.Option("--ids", help="List every record with its fate.")] = False,
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """List the runs, models, mixes and figures that depend on records, or the stages and figures behind a file."""
    from evidence.verbs.ways import forward_lines, is_path, way_forward
    from extras.records import down as verb
    from extras.records import past
    from extras.records.selection import is_selector

    if not is_selector(selector) and is_path(selector, Path(), at):
        way = way_forward(selector, Path(), at)
        show(way, as_json, forward_lines(way))
        return
    with past.at(Path(), at) as root:
        found = verb.down(selector, root, ids)
    show(found, as_json, verb.as_lines(found))


@app.command()
def items(
    benchmark: Annotated[
        str, typer.Argument(help="processbench, prmbench, search, best_of_n_min or sample.", autocompletion=_benchmarks)
    ],
    system: Annotated[str, typer.Argument(help="A run, a published PRM or a judge.", autocompletion=runs)],
    item: Annotated[str | None, typer.Argument(help="One item (default: all).")] = None,
    wrong: Annotated[bool, typer.Option("--wrong", help="Only decisions that are not correct.")] = False,
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """List the decisions of a system on the items of a benchmark."""
    from extras.records import past
    from extras.records.selection import decisions
    from ground.show import table

    with past.at(Path(), at) as root:
        rows = decisions(root, benchmark, system, item, wrong)
    show(rows, as_json, table(rows))


@app.command()
def forget(
    selectors: Annotated[list[str], typer.Argument(metavar="WHAT...", help=_HELP)],
    reason: Annotated[str, typer.Option(help="The reason, which is written into the list with each exclusion.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Exclude records from the next training set; list the stages that run again and how long each took last."""
    from extras.records import forget as verb

    found = verb.forget(selectors, Path(), reason, dry_run)
    show(found, as_json, verb.as_lines(found))
