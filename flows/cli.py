"""The verbs of the ``pathfinder`` command that need a clone of the project: run, plan and profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pathfinder.cli import app, passed_on, plain_errors
from pathfinder.core.io import DataError

Targets = Annotated[list[str] | None, typer.Argument(help="Stages or outputs; none is everything.")]


@app.command()
def run(
    targets: Targets = None,
    force: Annotated[bool, typer.Option(help="Run stages even where they are up to date.")] = False,
    pull: Annotated[bool, typer.Option(help="Restore from the remote what an earlier run left there.")] = False,
    jobs: Annotated[int, typer.Option(help="Stages side by side; 0 is one a core.")] = 0,
) -> None:
    """Run the pipeline of the active profile, and print the results."""
    from flows import reproduce

    arguments = [*(["--force"] if force else []), *(["--pull"] if pull else []), "--jobs", str(jobs)]
    with passed_on() as status:
        reproduce.main([*arguments, *(targets or [])])
    if status:
        raise typer.Exit(status[0])
    if Path("metrics/processbench").is_dir() and not targets:
        from pathfinder.reporting.results import results_table

        typer.echo(results_table(), nl=False)


@app.command()
def plan(
    targets: Targets = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Show what memory each stage will need instead.")] = False,
    memory: Annotated[float, typer.Option(help="With --gpu: of a GPU with this many GiB; 0 is what is here.")] = 0.0,
) -> None:
    """Show which stages a run would look at, and why; or what memory its models will need."""
    if gpu:
        _memory_plan(memory)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from flows.dvc import Dvc, require_project
    from flows.graph import load_graph
    from flows.plan import missing_data, planned
    from pathfinder.lineage.history import read_lock

    root = Path.cwd()
    with plain_errors():
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
    table = Table("stage", "runs", "why")
    for stage in stages:
        table.add_row(
            Text(stage.name), "yes" if stage.certain else "if its input changes", Text("\n".join(stage.reasons))
        )
    Console().print(table)


def _memory_plan(memory: float) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from pathfinder.core.params import load_params
    from pathfinder.models import footprint

    with plain_errors():
        params = load_params()
        device = footprint.Device("cuda", memory * footprint.GIB) if memory else footprint.this_device()
        found = {stage: footprint.verdict(stage, params, device) for stage in footprint.STAGES}
    size = f"{device.memory / footprint.GIB:.0f} GiB"
    place = "a GPU" if device.kind == "cuda" else "the CPU"
    table = Table("stage", "GiB", "of which", f"on {place} with {size}", "model")
    for stage, verdict in found.items():
        if verdict is None:
            table.add_row(stage, "0.0", "", "its model is served elsewhere", "")
            continue
        fits = "fits" if verdict.fits else f"does not fit; {verdict.remedy}"
        total = f"{verdict.need.total / footprint.GIB:.1f}"
        table.add_row(stage, total, Text(footprint.describe(verdict.need)), Text(fits), Text(verdict.need.model))
    Console().print(table)
    if not all(verdict.fits for verdict in found.values() if verdict is not None):
        raise typer.Exit(1)


@app.command()
def profile(
    name: Annotated[str | None, typer.Argument(help="The profile to write to params.yaml; none lists them.")] = None,
    force: Annotated[bool, typer.Option(help="Replace a params.yaml that was edited by hand.")] = False,
) -> None:
    """List the profiles, or write the complete params.yaml of one."""
    from flows import profiles

    root = Path.cwd()
    with plain_errors():
        if name is None:
            active = _active(root)
            for known in profiles.names(root):
                typer.echo(f"{'*' if known == active else ' '} {known}")
            return
        written = profiles.write(root, name, force)
    typer.echo(
        f"params.yaml {'now holds' if written else 'already held'} profile {name}; `pathfinder plan` shows what runs"
    )


def _active(root: Path) -> str:
    from pathfinder.core.params import load_params

    try:
        return load_params(root / "params.yaml").profile
    except DataError:
        return ""
