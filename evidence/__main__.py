"""Audit results and ask the history; needs only the repository and git, not DVC or Prefect.

Run     python -m evidence --help     list the verbs; docs/audit.md explains them
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.formats import cli as formats
from evidence.verbs import cli as verbs
from evidence.verbs.completion import outs
from extras.records import cli as records
from extras.why import cli as influence
from ground.io import DataError, PathfinderError
from ground.show import AsJson, show
from ground.text import errors_without_traceback, printable

app = typer.Typer(
    help="Trace results to their inputs, verify that nothing has changed, and ask what was made from what.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def check(
    path: Annotated[str | None, typer.Argument(help="An output (default: all).", autocompletion=outs)] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Treat a stage without a signed record as an error.")
    ] = False,
    key: Annotated[list[Path] | None, typer.Option(help="A public key (PEM) to trust, in addition.")] = None,
    remote: Annotated[
        bool, typer.Option("--remote", help="Read remotes on other machines too: their listing, records and log.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Like --remote, but read every byte there; an interrupted check resumes.")
    ] = False,
    all_commits: Annotated[
        bool, typer.Option("--all-commits", help="Check the dvc.lock of every commit against the records instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Hash everything behind an output again; exit status 1 on any difference, 2 if it cannot be checked."""
    from evidence.audit import check

    if all_commits:
        if path or strict or key or remote or full:
            message = "takes no path and no option but --json: it reads locks and records, no outs, keys or remotes"
            raise typer.BadParameter(message, param_hint="--all-commits")
        verbs.check_commits(as_json)
        return
    try:
        report = check.check(
            path, strict=strict, keys=key or (), remote="full" if full else "quick" if remote else "no"
        )
    except (PathfinderError, OSError) as error:
        print(f"error: could not check: {printable(str(error))}", file=sys.stderr)
        raise typer.Exit(2) from error
    show(report.as_json(), as_json, report.lines())
    if report.errors:
        raise typer.Exit(1)


@app.command()
def fetch(as_json: AsJson = False) -> None:
    """Copy the records and the log of remotes on other machines, so that the other verbs can use them."""
    from evidence.remote import mirror

    lines = mirror.fetch(Path()) or ["no remote is on another machine; check reads the others in place"]
    show(lines, as_json, lines)


@app.command()
def void(
    entry: Annotated[str, typer.Argument(metavar="NUMBER", help="The number of an unsigned entry of the log.")],
    remote: Annotated[str | None, typer.Option(help="A remote of DVC (default: the default one).")] = None,
    as_json: AsJson = False,
) -> None:
    """Declare an unsigned entry of a remote's log void, with the key of this user."""
    from evidence.remote.guard import void

    if not (entry.isascii() and entry.isdecimal()):
        raise DataError(
            f"{entry[:80]!r}: not the number of an entry; `pathfinder lineage check --remote` names unsigned ones"
        )
    address, key = void(Path(), int(entry), remote)
    found = {"remote": address, "entry": int(entry), "key": key}
    show(found, as_json, [f"entry {entry} of {address} is void for everyone who trusts key {key}"])


@app.command()
def record(
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="A record's id, or a trajectory's for all its records.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show a record's history: upstream line, judge answers, label, filter, split, training example, contamination."""
    from extras.records.trace import trace_record

    show(trace_record(identity), as_json)


app.add_typer(verbs.app)
app.add_typer(formats.app)
app.add_typer(records.app)
app.add_typer(influence.app)

if __name__ == "__main__":
    with errors_without_traceback():
        app(prog_name="python -m evidence")
