"""The verbs that check, list, show, compare and export the history. Each imports what it needs when it is called."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from evidence.formats import Format
from evidence.verbs import completion
from evidence.verbs.elsewhere import rooted
from ground.io import DataError, PathfinderError
from ground.show import AsJson, example, show, table
from ground.text import UsageError, printable

if TYPE_CHECKING:
    from evidence.remote.reading import Remote

app = typer.Typer()
_FEW_COLLECTIONS = 50_000
"""The number of new objects after which Python looks for garbage: a check parses much and drops little."""
At = Annotated[str | None, typer.Option("--at", metavar="REV", help="A git revision (default: the project's files).")]
"""The option ``--at`` of every verb that reads the history as it was at a revision."""


def _named(text: str, offered: Callable[[str], list[str]] = completion.outs) -> Any:
    """An argument that names a thing of the project, with its help and the names that a shell offers."""
    return typer.Argument(help=text, autocompletion=offered)


_OUT = "An output, such as models/full, or a figure, such as reports/tables.json#/results/0."
Target = Annotated[str | None, _named(_OUT)]


def _place(text: str) -> str:
    """A store's address, or a folder from here: ``--root`` changes the folder."""
    return text if not text or "://" in text else str(Path(text).absolute())


def _file(text: str) -> str:
    """If the text is the path of an existing file, make it absolute."""
    return str(Path(text).absolute()) if Path(text).exists() else text


@app.command(**example("models/full"))
def check(
    path: Annotated[str | None, _named("An output (default: all).")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Treat a stage without a signed record as an error.")
    ] = False,
    key: Annotated[list[Path] | None, typer.Option(help="A public key (PEM) to trust, in addition.")] = None,
    root_key: Annotated[
        list[Path] | None, typer.Option(help="Trust only keys in the list that this public key signed, and --key.")
    ] = None,
    remote: Annotated[
        bool, typer.Option("--remote", help="Read remotes on other machines too: their listing, records and log.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Like --remote, but read every byte there; an interrupted check resumes.")
    ] = False,
    witness: Annotated[
        str, typer.Option(metavar="PLACE", help="Compare with the notes of a witness there, too.", parser=_place)
    ] = "",
    tsa: Annotated[
        list[Path] | None, typer.Option(help="Certificates (PEM) of the authority that stamps the witness's notes.")
    ] = None,
    all_commits: Annotated[
        bool, typer.Option("--all-commits", help="Check the lock of every commit against the records instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Hash everything behind an output again; the last line begins with the verdict.

    Exit status 0: SOUND. 1: ALTERED. 2: UNREADABLE. 3: UNSIGNED, a stage has no record that a trusted key signed.
    """
    gc.set_threshold(_FEW_COLLECTIONS)
    from evidence.verbs import check

    if all_commits:
        from evidence.verbs.every_commit import check_all_commits

        if path or strict or remote or full or witness or tsa:
            message = "takes no path and only --key, --root-key and --json: it reads locks and records, no outs"
            raise typer.BadParameter(message, param_hint="--all-commits")
        commits = check_all_commits(Path(), key or (), root_key or ())
        lines = [f"{each.commit[:12]}: {finding}" for each in commits for finding in each.findings]
        rows = [each.as_json() for each in commits]
        show(rows, as_json, [*table(rows, ("commit", "date", "stages", "recorded", "attested")), *lines])
        raise typer.Exit(int(any(finding.level == "error" for each in commits for finding in each.findings)))
    try:
        how: Remote = "full" if full else "quick" if remote else "no"
        report = check.check(
            path, strict=strict, keys=key or (), remote=how, testimony=witness, roots=root_key or (), tsas=tsa or ()
        )
    except (PathfinderError, OSError) as error:
        print(f"error: could not check: {printable(str(error))}", file=sys.stderr)
        report = check.Report(unreadable=str(error))
    show(report.as_json(), as_json, report.lines())
    raise typer.Exit(check.EXIT[report.verdict])


@app.command(**example())
def fetch(as_json: AsJson = False) -> None:
    """Copy the records and the log of remotes on other machines, so that the other verbs can use them."""
    from evidence.remote import mirror

    lines = mirror.fetch(Path()) or ["no remote is on another machine; check reads the others in place"]
    show(lines, as_json, lines)


@app.command(**example("../witness/notes"))
def witness(
    place: Annotated[
        str,
        typer.Argument(help="A folder of another repository, or s3://BUCKET/PREFIX with object lock.", parser=_place),
    ],
    stamp: Annotated[
        str, typer.Option(metavar="URL", help="Have the note stamped by the time-stamp authority (RFC 3161) there.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Sign what the ledger and the logs hold now, as a second party with a separate key."""
    from evidence.remote.witness import observe

    note = observe(Path(), place, stamp)
    logs = {name: head.number for name, head in note.logs.items()}
    lines = note.ledger.number if note.ledger else 0
    show({"place": place, "note": note.number, "time": note.time, "ledger": lines, "logs": logs}, as_json)


@app.command(**example("gpu --revoked 2026-11-10 --reason stolen"))
def keys(
    name: Annotated[str, typer.Argument(help="Add or change this key of the list (default: print the list).")] = "",
    pem: Annotated[Path | None, typer.Option(help="Its public key.")] = None,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="Valid from (default: now).")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Until when it counts.")] = "",
    revoked: Annotated[str, typer.Option(metavar="TIME", help="The time of its revocation; needs --reason.")] = "",
    reason: Annotated[str, typer.Option(help="The reason for its revocation.")] = "",
    as_json: AsJson = False,
) -> None:
    """Print the signed list of keys; with NAME, change it, and sign it with this user's key, as the root."""
    from evidence.audit.trust import change_list, shared_keys

    times = {"from": start, "until": until, "at": revoked}
    changes: dict[str, Any] = {key: _time(text) for key, text in times.items() if text}
    if revoked or reason:
        changes["revoked"] = {"at": changes.pop("at", None), "reason": reason}
    if bool(name) != bool(pem or changes):
        raise UsageError("keys: a change needs the NAME of a key and an option, such as --pem FILE or --until TIME")
    found = change_list(Path(), name, pem, changes).keys if name else shared_keys(Path()).listed.values()
    rows = [each.model_dump(mode="json", by_alias=True) for each in found]
    show(rows, as_json, table(rows, ("name", "from", "until", "revoked")))


def _time(text: str) -> Any:
    from evidence.audit.trust import moment_of

    if (time := moment_of(text)) is None:
        raise UsageError(f"{text[:80]!r}: not a time; write it as 2026-11-10 or 2026-11-10T12:00:00+00:00")
    return time


@app.command(**example("5"))
def void(
    entry: Annotated[str, typer.Argument(metavar="NUMBER", help="The number of an unsigned entry of the log.")],
    remote: Annotated[str | None, typer.Option(help="A remote of DVC (default: the default one).")] = None,
    as_json: AsJson = False,
) -> None:
    """Declare an unsigned entry of a remote's log void, with the key of this user."""
    from evidence.remote.guard import void
    from evidence.settings import SETTINGS

    if not (entry.isascii() and entry.isdecimal()):
        raise UsageError(
            f"{entry[:80]!r}: not the number of an entry; `{SETTINGS.command} check --remote` names unsigned ones"
        )
    address, key = void(Path(), int(entry), remote)
    found = {"remote": address, "entry": int(entry), "key": key}
    show(found, as_json, [f"entry {entry} of {address} is void for everyone who trusts key {key}"])


@app.command(name="list", **example("outs --at HEAD"))
def list_(
    kind: Annotated[Literal["stages", "outs", "records", "runs"], typer.Argument(help="What to list.")] = "stages",
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """List the stages, their outs, the records of their runs, or the runs of the training."""
    from evidence.verbs.views import rows_of

    rows = rows_of(kind, Path(), at)
    show(rows, as_json, table(rows))


@app.command(**example("models/full"))
def up(
    target: Annotated[str, _named(f"{_OUT} @REV too.")],
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Print every step from an output or a figure back to the source files."""
    from evidence.verbs.ways import way_back

    found = way_back(target, Path(), at)
    show(found.as_json(), as_json, found.lines())


@app.command(**example("data"))
def down(
    target: Annotated[str, _named("A file or folder, such as data.")],
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """List the stages that read a path, directly or through other stages, what they made, and the figures."""
    from evidence.verbs.ways import forward_lines, way_forward

    found = way_forward(target, Path(), at)
    show(found, as_json, forward_lines(found))


@app.command(**example("train@full"))
def view(
    target: Annotated[
        str, _named("A stage, an output, a record's digest, or a value: FILE#/POINTER.", completion.targets)
    ],
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Show one stage, output, record or value. TARGET@REV shows it at a revision."""
    from evidence.verbs.views import view

    show(view(target, Path(), at), as_json)


@app.command(**example("params.yaml"))
def find(
    target: Annotated[
        str,
        typer.Argument(
            help="A file anywhere, the beginning of an md5 or a sha256, or a fact of runs: package=torch==2.13.0, "
            "host=X, user=X, key=X, or any key of a record. * stands for any text.",
            parser=_file,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """List the stages, records, commits and stores that have these bytes, or the runs with a fact; status 1 if none."""
    from evidence.verbs.finding import find

    found = find(target, Path())
    show(found, as_json, [*(f"digest {one}" for one in found["digests"]), *table(found["places"])])
    if not found["places"]:
        what = "stage, record, commit or store has these bytes" if found["digests"] else "record has this fact"
        typer.echo(f"no {what}", err=True)
        raise typer.Exit(1)


@app.command(**example("HEAD"))
def diff(
    left: Annotated[str, typer.Argument(help="A revision, a record's digest, or an output such as models/full@REV.")],
    right: Annotated[str | None, typer.Argument(help="The same (default: the project as it is).")] = None,
    as_json: AsJson = False,
) -> None:
    """Say which inputs differ between two revisions, records or models, and which outputs and figures follow."""
    from evidence.verbs.diff import diff, lines_of

    found = diff(left, right, Path())
    show(found, as_json, lines_of(found))


@app.command(**example("filter"))
def replay(
    stage: Annotated[str, _named("A stage, or the digest of a record.", completion.stages)],
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Execute a stage again in a clean worktree from its recorded inputs, and compare what it makes.

    Exit status 0: identical. 1: within tolerance. 2: different. 3: not possible.
    """
    from evidence.verbs.replay import EXIT, NOT_POSSIBLE, replay

    try:
        found = replay(stage, Path(), at, lambda line: typer.echo(line, err=True))
    except DataError as error:
        typer.echo(f"error: {printable(str(error))}", err=True)
        raise typer.Exit(NOT_POSSIBLE) from error
    show(found.as_json(), as_json, found.lines())
    raise typer.Exit(EXIT[found.verdict])


@app.command(**example("--format crate --output crate.json"))
def export(
    form: Annotated[Format, typer.Option("--format", help="The format; docs/audit.md describes each.")],
    target: Target = None,
    output: Annotated[Path | None, typer.Option(help="The file to write (default: standard output).")] = None,
    base: Annotated[str, typer.Option(help="crate: the address under which the project folder is published.")] = "",
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Write the records in a format of other tools; the same records give the same bytes."""
    from evidence.formats import exported
    from evidence.formats.lineage import read_lineage
    from evidence.verbs.targets import at as at_revision
    from ground.io import write_text

    _require_file(output)
    with at_revision(Path(), at) as root:
        text = exported(read_lineage(root, target), form, base)
    if output is not None:
        write_text(output, text)
    elif not as_json:
        sys.stdout.write(text)
    file, content = (None, text) if output is None else (output.as_posix(), None)
    show({"format": form, "bytes": len(text.encode()), "file": file, "content": content}, as_json, ())


@app.command(**example("--output bundle.tar.xz"))
def bundle(
    target: Annotated[
        list[str] | None,
        typer.Argument(help="Outs, or figures such as reports/tables.json#/results/0 (default: the project's tables)."),
    ] = None,
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("bundle.tar.xz"),
    as_json: AsJson = False,
) -> None:
    """Write the evidence of the current lock to one signed file, which examples/verify_bundle.py verifies."""
    from evidence.verbs.bundle import bundle
    from ground.io import write_bytes

    _require_file(output)
    content, index = bundle(Path(), target or ())
    write_bytes(output, content)
    unrecorded = [stage for stage, record in index["stages"].items() if record is None]
    figures = list(index["figures"])
    found = {"bundle": output.as_posix(), "bytes": len(content), "figures": figures, "unrecorded": unrecorded}
    show(found, as_json)


@app.command(**example("models/full --output lineage.html"))
def render(
    target: Target = None,
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("lineage.html"),
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page of the history, from a figure to the lines of the sources. It loads nothing."""
    from evidence.formats.page.render import render as rendered
    from evidence.verbs.targets import at as at_revision
    from ground.io import write_text

    _require_file(output)
    with at_revision(Path(), at) as root:
        page = rendered(root, target)
    write_text(output, page)
    show({"page": output.as_posix(), "bytes": len(page.encode())}, as_json)


def _require_file(output: Path | None) -> None:
    if output is not None and output.is_dir():
        raise DataError(f"{output}: is a folder; give --output the name of a file in it")


rooted(app)
