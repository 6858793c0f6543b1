"""The verbs of the ``pathfinder`` command that need a clone of the project: run, plan and profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pathfinder.cli import PIPELINE, PIPELINE_VERBS, plain_errors

app = typer.Typer()
Targets = Annotated[list[str] | None, typer.Argument(help="Stages or outputs (default: all).")]


@app.command(help=PIPELINE_VERBS["run"], rich_help_panel=PIPELINE)
def run(
    targets: Targets = None,
    force: Annotated[bool, typer.Option(help="Run stages even if they are up to date.")] = False,
    pull: Annotated[bool, typer.Option(help="Restore the outputs of earlier runs from the remote.")] = False,
    jobs: Annotated[int, typer.Option(help="Concurrent stages (default: one per core).", show_default=False)] = 0,
) -> None:
    """Run the stages as a Prefect flow."""
    from flows import reproduce

    arguments = [*(["--force"] if force else []), *(["--pull"] if pull else []), "--jobs", str(jobs)]
    try:
        reproduce.main([*arguments, *(targets or [])])
    except SystemExit as leaving:
        if leaving.code:
            raise
    if Path("metrics/processbench").is_dir() and not targets:
        from pathfinder.reporting.results import results_table

        typer.echo(results_table(), nl=False)


@app.command(help=PIPELINE_VERBS["plan"], rich_help_panel=PIPELINE)
def plan(
    targets: Targets = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Show how much memory each stage needs instead.")] = False,
    memory: Annotated[float, typer.Option(help="With --gpu: GiB of the GPU; 0: this machine's.")] = 0.0,
) -> None:
    """Print a table of stages."""
    if gpu:
        _memory_plan(memory)
        return
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
    rows = [
        (Text(stage.name), "yes" if stage.certain else "if its input changes", Text("\n".join(stage.reasons)))
        for stage in stages
    ]
    _print_table(("stage", "runs", "why"), rows)


def _memory_plan(memory: float) -> None:
    from rich.text import Text

    from pathfinder.core.params import load_params
    from pathfinder.models import footprint

    with plain_errors():
        params = load_params()
        device = footprint.Device("cuda", memory * footprint.GIB) if memory else footprint.this_device()
        found = {stage: footprint.verdict(stage, params, device) for stage in footprint.STAGES}
    rows: list[tuple[str | Text, ...]] = []
    for stage, verdict in found.items():
        if verdict is None:
            rows.append((stage, "0.0", "", "its model runs elsewhere", ""))
            continue
        fits = "fits" if verdict.fits else f"does not fit; {verdict.remedy}"
        need = verdict.need
        total = f"{need.total / footprint.GIB:.1f}"
        rows.append((stage, total, Text(footprint.describe(need)), Text(fits), Text(need.model)))
    place = "a GPU" if device.kind == "cuda" else "the CPU"
    size = f"{device.memory / footprint.GIB:.0f} GiB"
    _print_table(("stage", "GiB", "of which", f"on {place} with {size}", "model"), rows)
    if not all(verdict.fits for verdict in found.values() if verdict is not None):
        raise typer.Exit(1)


def _print_table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


@app.command(help=PIPELINE_VERBS["profile"], rich_help_panel=PIPELINE)
def profile(
    name: Annotated[str | None, typer.Argument(help="The profile to write to params.yaml (default: list all).")] = None,
    force: Annotated[bool, typer.Option(help="Replace a params.yaml that was edited by hand.")] = False,
) -> None:
    """List or write profiles."""
    from flows import profiles

    root = Path.cwd()
    with plain_errors():
        if name is None:
            active = _active(root)
            for known in profiles.names(root):
                typer.echo(f"{'*' if known == active else ' '} {known}")
            return
        written = profiles.write(root, name, force)
    state = "now holds" if written else "already held"
    typer.echo(f"params.yaml {state} profile {name}; `pathfinder plan` shows what would run")


def _active(root: Path) -> str:
    from pathfinder.core.io import DataError
    from pathfinder.core.params import load_params

    try:
        return load_params(root / "params.yaml").profile
    except DataError:
        return ""
