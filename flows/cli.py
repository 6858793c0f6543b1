"""The verbs of the ``pathfinder`` command that need a clone of the project: run, plan, pull, profile and team."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evidence.verbs import completion
from ground.show import PIPELINE, PIPELINE_VERBS, AsJson, Verbs, example, offered, show

if TYPE_CHECKING:
    from pathfinder.planning.plan_text import Table

app = typer.Typer(cls=Verbs, pretty_exceptions_enable=False)
Targets = Annotated[
    list[str] | None, typer.Argument(help="Stages or outputs (default: all).", autocompletion=completion.targets)
]


def _profiles(incomplete: str) -> list[str]:
    from pathfinder.planning import profiles

    return offered(incomplete, profiles.names(Path.cwd()))


def _cards(incomplete: str) -> list[str]:
    from pathfinder.planning import cards

    return offered(incomplete, [card.name for card in cards.known()])


@app.command(help=PIPELINE_VERBS["run"], rich_help_panel=PIPELINE, **example("report --jobs 2"))
def run(
    targets: Targets = None,
    force: Annotated[bool, typer.Option("--force", help="Run stages even if they are up to date.")] = False,
    pull: Annotated[bool, typer.Option("--pull", help="Restore the outputs of earlier runs from the remote.")] = False,
    jobs: Annotated[
        int, typer.Option(help="Stages at a time (default: one per GPU, else per core).", show_default=False, min=0)
    ] = 0,
    keep_lock: Annotated[
        bool, typer.Option("--keep-lock", help="Put the committed lock back if the results differ from it.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print every line and the table of all stages, also on a terminal.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the pipeline of the active profile as a Prefect flow and print the results."""
    from flows import start
    from flows.local import committed
    from flows.terminal import Terminal
    from pathfinder.reporting import finished

    def show_all(notes: list[str], tables: Path | None) -> None:
        stages = [asdict(outcome) for outcome in Terminal.outcomes]
        show({"stages": stages, "notes": notes, "results": finished.result_rows(tables)}, as_json=True)

    Terminal.is_verbose, Terminal.uses_stderr = verbose, as_json
    try:
        start.main(targets or (), force, pull, jobs)
    except SystemExit:
        if as_json:  # a stage failed, which "stages" names, or the run was interrupted
            show_all([], None)
        raise
    notes = list(committed.explain(Path.cwd(), keep_lock))
    tables = None if targets else finished.tables_of_run()
    if as_json:
        show_all(notes, tables)
        return
    for line in notes:
        typer.echo(line)
    if tables is not None:
        typer.echo(finished.results_table(tables), nl=False)
    for line in Terminal.closing:
        typer.echo(line)


@app.command(help=PIPELINE_VERBS["plan"], rich_help_panel=PIPELINE, **example("--gpu --profile paper"))
def plan(
    targets: Targets = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Show memory, hours, tokens and disk instead.")] = False,
    card: Annotated[str, typer.Option(help="With --gpu: GPUs of this name, such as A100.", autocompletion=_cards)] = "",
    memory: Annotated[float, typer.Option(help="With --gpu: GiB per GPU; 0: as for --card.", min=0.0)] = 0.0,
    gpus: Annotated[int, typer.Option(help="With --card or --memory: the number of GPUs.", min=1)] = 1,
    name: Annotated[
        str, typer.Option("--profile", help="With --gpu: a profile, on its own machine.", autocompletion=_profiles)
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="With --gpu: one line for each GPU profile.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a table of stages."""
    machine = bool(memory or card or gpus > 1 or name)
    if not gpu and (machine or every):
        raise typer.BadParameter("--card, --memory, --gpus, --profile and --all are options of --gpu; add it")
    if every and machine:
        raise typer.BadParameter("--all shows each profile on its own machine; leave out the other options")
    if gpu and targets:
        raise typer.BadParameter("--gpu shows all stages of a profile; leave out the targets")
    if gpu:
        _gpu_plan(name, gpus, memory, card, every, as_json)
        return
    from evidence.dvc.history import MAIN_LOCK, read_lock
    from flows.local.dvc import Dvc, require_project
    from flows.local.graph import load_graph, missing_data, planned

    root = Path.cwd()
    require_project(root)
    graph = load_graph(root)
    selected = graph.select(targets or [])
    locked = set(read_lock(root)) if (root / MAIN_LOCK).exists() else set()
    stages = planned(graph, Dvc(root).status(), locked, selected)
    missing = missing_data(root)
    if as_json:
        show({"fetched_first": missing, "stages": [asdict(stage) for stage in stages]}, as_json)
        return
    for pointer in missing:
        typer.echo(f"{pointer}: its content is fetched first")
    if not stages:
        typer.echo(f"nothing to do, everything is up to date ({len(selected)} stages)")
        return
    rows = [(s.name, "yes" if s.certain else "if its input changes", "\n".join(s.reasons)) for s in stages]
    _show(None, False, [(("stage", "runs", "why"), rows)])


def _gpu_plan(name: str, gpus: int, memory: float, card: str, every: bool, as_json: bool) -> None:
    from pathfinder.planning import gpu_plan, plan_text, profiles

    root = Path.cwd()
    if every:
        plans = {known: plan.as_json() for known, plan in gpu_plan.plans(root).items()}
        machines = {known: profiles.summary(root, known).machine for known in plans}
        _show([*plans.values()], as_json, [plan_text.overview(plans, machines)])
        return
    found = gpu_plan.plan_of(root, name, gpus, memory, card).as_json()
    _show(found, as_json, plan_text.parts(found))
    if not (found["fits"] and found["has_room"]):
        raise typer.Exit(1)


def _show(value: Any, as_json: bool, parts: Iterable[str | Table]) -> None:
    """Print JSON, or lines and tables. Names in the first column stay whole, because a reader types them, if the others
    have room beside them.

    Without a terminal or ``COLUMNS``, no line is broken.
    """
    if as_json:
        show(value, as_json)
        return
    from rich import table
    from rich.console import Console

    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(markup=False, emoji=False, highlight=False, width=None if has_width else 1000)
    for part in parts:
        if isinstance(part, str):
            console.print(part, overflow="fold")
            continue
        header, rows = part[0], [*part[1]]
        shown = table.Table()
        has_room = max((len(row[0]) for row in rows), default=0) + 8 * (len(header) - 1) <= console.width
        for place, name in enumerate(header):
            shown.add_column(name, no_wrap=place == 0 and has_room, overflow="fold")
        for row in rows:
            shown.add_row(*row)
        console.print(shown)


@app.command(help=PIPELINE_VERBS["pull"], rich_help_panel=PIPELINE, **example("--key docs/evidence/runner.pem"))
def pull(
    key: Annotated[list[Path] | None, typer.Option(help="A public key (PEM) to trust, in addition.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a changed lock and changed outputs.")] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Also restore the run's uncommitted changes and its outputs that git holds.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore the lock and every output of the newest published run of this commit."""
    from flows.local import restore

    restored = restore.pull(Path.cwd(), key or (), force, apply)
    show(asdict(restored), as_json, restored.lines())


@app.command(help=PIPELINE_VERBS["profile"], rich_help_panel=PIPELINE, **example("quickstart"))
def profile(
    name: Annotated[
        str | None,
        typer.Argument(help="The profile to write to params.yaml (default: list all).", autocompletion=_profiles),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a params.yaml that was edited by hand.")] = False,
    as_json: AsJson = False,
) -> None:
    """List or write profiles."""
    from pathfinder.core.params import load_params
    from pathfinder.planning import profiles

    root = Path.cwd()
    if name is None:
        rows = list(profiles.listed(root))
        shown = [(f"{' *'[row['active']]} {row['profile']}", row["machine"], row["purpose"]) for row in rows]
        _show(rows, as_json, [(("  profile", "machine", "purpose"), shown)])
        return
    is_new = profiles.write(root, name, force)
    unpinned = [source.name for source in load_params(root / "params.yaml").download.sources if not source.is_pinned]
    state = "now holds" if is_new else "already held"
    lines = [f"params.yaml {state} profile {name}; `pathfinder plan` shows what would run"]
    if unpinned:
        lines.append(f"not pinned: {', '.join(unpinned)}; `python -m stages.download --pin` pins what they hold today")
    show({"profile": name, "written": is_new, "not_pinned": unpinned}, as_json, lines)


@app.command(help=PIPELINE_VERBS["team"], rich_help_panel=PIPELINE, **example(""))
def team(as_json: AsJson = False) -> None:
    """Print the state of the team's work."""
    from flows.local import hooks

    lines = [line for state in hooks("state") for line in state(Path.cwd())]
    show({"lines": lines}, as_json, lines)


if __name__ == "__main__":
    app()
