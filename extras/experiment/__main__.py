"""Run the experiment of docs/experiment.md, or a part of it.

Run     make experiment BLOCK=tuned           everything that a block needs, as DVC stages
        python -m extras.experiment --help    the parts, such as `cell tuned/a2-full-500-s201`
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from extras.experiment.plan import FOLDER, SHARES, Cell, load_plan
from ground.io import DataError, read_json, write_json
from ground.progress import Progress
from ground.show import Verbs

app = typer.Typer(
    cls=Verbs, help=(__doc__ or "").partition("\n")[0], add_completion=False, pretty_exceptions_enable=False
)


@app.command("material")
def draw() -> None:
    """Draw the records and the test sets."""
    from extras.experiment.material import write_material

    write_material(load_plan())


@app.command()
def base(name: str) -> None:
    """Pretrain a base model of the ladder, such as a2; about 20 minutes on one core."""
    from extras.experiment.bases import train_base

    train_base(name, load_plan())


@app.command()
def run(
    blocks: list[str],
    jobs: Annotated[int, typer.Option(min=1, help="Processes, each on one core.")] = 2,
    commit: Annotated[bool, typer.Option("--commit", help="Commit the figures of each cell when it ends.")] = False,
) -> None:
    """Measure the cells of blocks that are missing or whose inputs changed; each is stored when it ends."""
    from extras.experiment.running import is_current, measured, path_of

    plan = load_plan()
    cells = {path_of(block, cell): cell for block in blocks for cell in plan.block(block).cells}
    waiting = {path: cell for path, cell in cells.items() if not is_current(path, cell)}
    with Progress(f"experiment {' '.join(blocks)}", len(cells), "cells") as progress:
        progress.resume(len(cells) - len(waiting))
        for path in measured(waiting, jobs):
            if commit:
                subprocess.run(["git", "add", "--", str(path)], check=True)
                message = f"Add the figures of {path.stem}"
                subprocess.run(["git", "commit", "--quiet", "--message", message, "--", str(path)], check=True)
            progress.advance(note=path.stem)


@app.command("cell")
def again(name: Annotated[str, typer.Argument(metavar="BLOCK/CELL")]) -> None:
    """Measure a stored cell, such as tuned/a2-full-500-s201, again and print what differs."""
    from extras.experiment.running import laboratory, path_of

    block, _, rest = name.rpartition("/")
    cell = Cell.parse(rest)
    path = path_of(block, cell)
    if not path.exists():
        raise DataError(f"{path} does not exist; name a finished cell as BLOCK/CELL")
    stored, found = read_json(path), laboratory().measure(block, cell)
    differing = [key for key in ("identity", "processbench", "prmbench") if not _has(stored[key], found[key])]
    for reading, figures in found["processbench"].items():
        before = stored["processbench"][reading]["f1"]
        print(f"{reading}: F1 {_shown(figures['f1'])} at 0, 3 and 10 % of not-optimal steps; stored {_shown(before)}")
    print(f"different: {', '.join(differing)} (stored by {stored['machine']})" if differing else "the same figures")


def _has(stored: Any, found: Any) -> bool:
    """True if ``stored`` has all of ``found``; older cells have further figures."""
    if isinstance(found, dict):
        return all(key in stored and _has(stored[key], value) for key, value in found.items())
    return bool(stored == found)


def _shown(f1: dict[str, Any]) -> str:
    return ", ".join(f"{f1[str(share)]:.2f}" for share in SHARES)


@app.command()
def attack(
    name: Annotated[str, typer.Argument(metavar="CELL")],
    parts: Annotated[list[str] | None, typer.Argument(help="dressed, best_of_n, soundness-min, …")] = None,
    samples: Annotated[int, typer.Option(help="The largest n of best of n.")] = 1024,
    steps: Annotated[int, typer.Option(help="Steps of the policy that learns.")] = 300,
) -> None:
    """Train the PRM of a cell and attack it for an hour by the named attacks (default: attacks without a file)."""
    from extras.experiment.attacks import Attacked
    from extras.experiment.running import laboratory

    cell = Cell.parse(name)
    folder = FOLDER / "attacks" / name
    known = Attacked.parts(cell)
    if unknown := {*(parts or ())} - {*known}:
        raise DataError(f"no attack {', '.join(sorted(unknown))} on {cell.variant}; choose from {', '.join(known)}")
    waiting = parts or [part for part in known if not (folder / f"{part}.json").exists()]
    with tempfile.TemporaryDirectory() as temporary:
        attacked = Attacked(laboratory(), cell, Path(temporary), samples, steps)
        for part in waiting:
            write_json(folder / f"{part}.json", attacked.measure(part))
    print(folder)


if __name__ == "__main__":
    app(prog_name="python -m extras.experiment")
