"""Record the stages of a DVC project, publish and check the records, and ask the history.

Run     python -m evidence --help     list the verbs; evidence/README.md shows the way from an empty project
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evidence.verbs import cli as verbs
from ground.show import AsJson, example, show
from ground.text import errors_without_traceback

app = typer.Typer(
    help="Record DVC stages, verify that no result has changed, and ask what was made from what.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(**example("-- python train.py"))
def record(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="The program and its arguments.")],
) -> None:
    """Run any program as a stage of dvc.yaml and record the run; the exit status is the program's."""
    from evidence.record.record import record_command

    record_command(command)


@app.command(**example("--remote storage"))
def publish(
    remote: Annotated[str | None, typer.Option(help="A remote of DVC (default: the default one).")] = None,
    as_json: AsJson = False,
) -> None:
    """Add the current lock, its records and this user's signature to the log of a remote, after `dvc push`."""
    from evidence.dvc.stores import remote_of
    from evidence.remote import publication

    found = remote_of(Path(), remote)
    address = found.address_from(Path())
    commit = publication.publish(Path(), address, endpoint=found.endpoint)
    shown = {"remote": found.name, "address": address, "entry": commit.number}
    show(shown, as_json, [f"entry {commit.number} of the log of remote {found.name} ({address})"])


app.add_typer(verbs.app)

if __name__ == "__main__":
    with errors_without_traceback():
        app(prog_name="python -m evidence")
