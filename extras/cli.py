"""The verbs of the ``pathfinder`` command that ask the history. The command finds them by their entry point.

Each verb imports what it needs when it is called.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from evidence.verbs import cli as verbs
from evidence.verbs.cli import At
from evidence.verbs.completion import runs
from evidence.verbs.elsewhere import rooted
from ground.show import AsJson, example, offered, show, table
from ground.text import UsageError

PANEL = "Audit"
app = typer.Typer()
lineage = typer.Typer(
    help="Trace results to their inputs, verify that nothing has changed, and ask what was made from what.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_rooted = typer.Typer()
"""The verbs that take ``--root``."""
_BENCHMARKS = ("processbench", "prmbench", "search", "best_of_n_min", "sample")
_HELP = (
    "The id of a record or a line, a content id, item:X for the records with the problem of a benchmark item, run:X, "
    "retried:1, or a column of the index, such as licence:X, rater:X, source:X, file:X, mixes:X or reason:X."
)


def _benchmarks(incomplete: str) -> list[str]:
    return offered(incomplete, _BENCHMARKS)


_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@lineage.command(**example("prm800k-93a65ad0-2"))
@app.command(rich_help_panel=PANEL, **example("prm800k-93a65ad0-2"))
def record(
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="A record's id, or a trajectory's for all its records.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show a record's history: upstream line, judge answers, label, filter, split, training example, contamination."""
    from extras.records.trace import trace_record

    show(trace_record(identity), as_json)


@_rooted.command(**example("rater:rater-11 --ids"))
def down(
    selector: Annotated[str, typer.Argument(metavar="WHAT", help=f"A file or folder, or records: {_HELP}")],
    ids: Annotated[bool, typer.Option("--ids", help="List every record with its fate.")] = False,
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """List the runs, models, mixes and figures that depend on records, or the stages and figures behind a file."""
    from evidence.verbs.ways import forward_lines, is_path, way_forward
    from extras.records import down as verb
    from extras.records.selection import is_selector

    if not is_selector(selector) and is_path(selector, Path(), at):
        way = way_forward(selector, Path(), at)
        show(way, as_json, forward_lines(way))
        return
    with verb.at_revision(Path(), at) as root:
        found = verb.down(selector, root, ids)
    show(found, as_json, verb.as_lines(found))


@_rooted.command(**example("processbench full --wrong"))
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
    from extras.records.down import at_revision
    from extras.records.selection import decisions

    with at_revision(Path(), at) as root:
        rows = decisions(root, benchmark, system, item, wrong)
    show(rows, as_json, table(rows))


@_rooted.command(**example("rater:rater-11 --dry-run"))
def forget(
    selectors: Annotated[list[str], typer.Argument(metavar="WHAT...", help=_HELP)],
    reason: Annotated[str, typer.Option(help="The reason, which is written into the list with each exclusion.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Exclude records from the next training set; list the stages that will run again, with their last duration."""
    from extras.records import forget as verb

    found = verb.forget(selectors, Path(), reason, dry_run)
    show(found, as_json, verb.as_lines(found))


@app.command(rich_help_panel=PANEL, **example("omnimath-88"))
@_rooted.command(**example("omnimath-88"))
def why(
    item: Annotated[str, typer.Argument(help="A ProcessBench item: ID or SUBSET/ID.")],
    run: Annotated[str, typer.Option(help="The run whose decision is explained.", autocompletion=runs)] = "full",
    step: Annotated[
        int | None, typer.Option(help="A step, from 0 (default: the first with a reward below 0.5, or the lowest).")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Records to list on each side.")] = 10,
    prove: Annotated[
        bool, typer.Option("--prove", help="Train again without the records that support the decision most.")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compute the scores of a training that is too long for reliable ones.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the training records that a decision depends on. This repeats the training: minutes for a tiny model.

    For a training that amplifies small changes too much, it lists similar training steps instead, in seconds.
    """
    from pathfinder.core.kernels import pin_kernels

    pin_kernels()  # like the train stage, before PyTorch is imported, so that the weights are equal
    from extras.why import why as verb

    found = verb.why(item, run, step, top, prove, anyway)
    show(found, as_json, verb.lines_of(found))


@app.command(rich_help_panel=PANEL, **example("models/full --dry-run"))
def publish(
    model: Annotated[str, typer.Argument(help="A trained model, such as models/full.")],
    to: Annotated[str | None, typer.Option(help="The repository of the model, ORG/NAME.")] = None,
    data: Annotated[str | None, typer.Option(help="The repository of the training data, ORG/NAME.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Build and check everything; upload nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish a trained model, and its training data if --data is given, on the Hub (docs/audit.md).

    Builds the folders below .pathfinder/publish and checks them.
    Refuses a model whose history does not pass the audit.
    A repository that does not exist is made private. The token comes from HF_TOKEN.
    """
    from extras.publish import client
    from extras.publish.checks import check_repository
    from extras.publish.folder import EXPORT, build_data, build_model, require_sound
    from pathfinder.reporting.names import CARDS

    if to is None and not dry_run:
        raise UsageError("publish: name the repository with --to ORG/NAME, or add --dry-run")
    for name in (to, data):
        if name is not None and not _NAME.fullmatch(name):
            raise UsageError(f"publish: {name!a} is not the name of a repository; use ORG/NAME")
    root, target = Path(), model.rstrip("/")
    checks = require_sound(root, CARDS, EXPORT)
    repositories = {"model": (build_model(root, target), to), "dataset": (build_data(root, target), data)}
    found: dict[str, Any] = {"checks": checks, "repositories": []}
    for kind, (repository, name) in repositories.items():
        checks += check_repository(repository, root)
        files = list(repository.files())
        about = {"kind": kind, "folder": repository.folder.as_posix(), "to": name, "files": files}
        found["repositories"].append(about | {"bytes": sum(file["bytes"] for file in files), "commit": None})
    for about, (repository, name) in zip(found["repositories"], repositories.values(), strict=True):
        if name is not None and not dry_run:
            about["commit"] = client.upload(repository, name)
    show(found, as_json, _published_lines(found))


def _published_lines(found: dict[str, Any]) -> list[str]:
    """The result as text: the checks, then every file with bytes and sha256."""
    lines = [f"passed: {check}" for check in found["checks"]]
    for about in found["repositories"]:
        where = f"to {about['to']}" if about["to"] else "not uploaded without a name"
        state = f"uploaded, {about['commit']}" if about["commit"] else where
        lines += ["", f"{about['kind']}, {about['bytes']:,} bytes in {about['folder']} ({state})"]
        lines += [f"  {file['bytes']:>13,}  {file['sha256'][:16]}  {file['file']}" for file in about["files"]]
    if not any(about["commit"] for about in found["repositories"]):
        lines += ["", "nothing was uploaded"]
    return lines


for group in (verbs.app, rooted(_rooted)):
    lineage.add_typer(group)
rooted(lineage)
app.add_typer(lineage, name="lineage", rich_help_panel=PANEL)
