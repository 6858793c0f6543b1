"""The verbs of the ``pathfinder`` command that need a clone of the project: run, plan, pull and profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pathfinder.cli import PIPELINE, PIPELINE_VERBS, Verbs
from pathfinder.core.io import DataError
from pathfinder.lineage.verbs.show import AsJson, show

app = typer.Typer(cls=Verbs)
Targets = Annotated[list[str] | None, typer.Argument(help="Stages or outputs (default: all).")]


@app.command(help=PIPELINE_VERBS["run"], rich_help_panel=PIPELINE)
def run(
    targets: Targets = None,
    force: Annotated[bool, typer.Option("--force", help="Run stages even if they are up to date.")] = False,
    pull: Annotated[bool, typer.Option("--pull", help="Restore the outputs of earlier runs from the remote.")] = False,
    jobs: Annotated[int, typer.Option(help="Concurrent stages (default: per GPU or core).", show_default=False)] = 0,
    keep_lock: Annotated[
        bool, typer.Option("--keep-lock", help="Put the committed dvc.lock back if the results differ from it.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print every line and the table of all stages, also on a terminal.")
    ] = False,
) -> None:
    """Run the pipeline of the active profile as a Prefect flow and print the results."""
    from flows import committed, reproduce
    from flows.terminal import Terminal

    Terminal.is_verbose = verbose
    reproduce.main(targets or (), force, pull, jobs)
    for line in committed.explain(Path.cwd(), keep_lock):
        typer.echo(line)
    if Path("metrics/processbench").is_dir() and not targets:
        from pathfinder.core.params import load_params
        from pathfinder.reporting.names import PUBLISHED, TABLES
        from pathfinder.reporting.results import results_table

        typer.echo(results_table(PUBLISHED if load_params().comparisons else TABLES), nl=False)
    for line in Terminal.closing:
        typer.echo(line)


@app.command(help=PIPELINE_VERBS["plan"], rich_help_panel=PIPELINE)
def plan(
    targets: Targets = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Show memory, hours, tokens and disk instead.")] = False,
    memory: Annotated[float, typer.Option(help="With --gpu: GiB of each GPU; 0: this machine's.")] = 0.0,
    gpus: Annotated[int, typer.Option(help="With --gpu and --memory: the number of GPUs.", min=1)] = 1,
    name: Annotated[str, typer.Option("--profile", help="With --gpu: a profile, on its own machine.")] = "",
    every: Annotated[bool, typer.Option("--all", help="With --gpu: one line for each GPU profile.")] = False,
) -> None:
    """Print a table of stages."""
    if gpu:
        _gpu_plan(name, gpus, memory, every)
        return
    from flows.dvc import Dvc, require_project
    from flows.graph import load_graph
    from flows.plan import missing_data, planned
    from pathfinder.lineage.history import read_lock

    root = Path.cwd()
    require_project(root)
    graph = load_graph(root)
    selected = graph.select(targets or [])
    locked = set(read_lock(root)) if (root / "dvc.lock").exists() else set()
    stages = planned(graph, Dvc(root).status(), locked, selected)
    for pointer in missing_data(root):
        typer.echo(f"{pointer}: its content is fetched first")
    if not stages:
        typer.echo(f"nothing to do, everything is up to date ({len(selected)} stages)")
        return
    rows = [(s.name, "yes" if s.certain else "if its input changes", "\n".join(s.reasons)) for s in stages]
    _print_table(("stage", "runs", "why"), rows)


def _gpu_plan(name: str, gpus: int, memory: float, every: bool) -> None:
    from flows import gpu_plan

    root = Path.cwd()
    if every:
        _print_table(gpu_plan.OVERVIEW, gpu_plan.overview(root))
        return
    found = gpu_plan.plan_of(root, name, gpus, memory)
    _print_table(gpu_plan.memory_header(found.device), found.memory_rows())
    if found.is_estimated:
        _print_table(gpu_plan.HOURS, found.hour_rows())
    for line in found.lines():
        typer.echo(line)
    if not (found.fits and found.has_room):
        raise typer.Exit(1)


def _print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    Console(markup=False, emoji=False).print(table)


@app.command(help=PIPELINE_VERBS["pull"], rich_help_panel=PIPELINE)
def pull(
    key: Annotated[list[Path] | None, typer.Option(help="A public key (PEM) to trust, in addition.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a changed dvc.lock and changed outputs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore dvc.lock and every output of the newest published run of this commit."""
    from flows.guard import restore

    restored = restore.pull(Path.cwd(), key or (), force)
    show(restored.as_json(), as_json, restored.lines())


@app.command(help=PIPELINE_VERBS["profile"], rich_help_panel=PIPELINE)
def profile(
    name: Annotated[str | None, typer.Argument(help="The profile to write to params.yaml (default: list all).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a params.yaml that was edited by hand.")] = False,
) -> None:
    """List or write profiles."""
    from flows import profiles
    from pathfinder.core.params import load_params

    root = Path.cwd()
    if name is None:
        active = _active(root)
        rows = [(known, profiles.summary(root, known)) for known in profiles.names(root)]
        shown = [(f"{'*' if known == active else ' '} {known}", told.machine, told.purpose) for known, told in rows]
        _print_table(("  profile", "machine", "purpose"), shown)
    else:
        state = "now holds" if profiles.write(root, name, force) else "already held"
        typer.echo(f"params.yaml {state} profile {name}; `pathfinder plan` shows what would run")
        sources = load_params(root / "params.yaml").download.sources
        if unpinned := ", ".join(source.name for source in sources if not source.is_pinned):
            typer.echo(f"not pinned: {unpinned}; `python -m stages.download --pin` pins what they hold today")


def _active(root: Path) -> str:
    from pathfinder.core.params import load_params

    try:
        return load_params(root / "params.yaml").profile
    except DataError:
        return ""
