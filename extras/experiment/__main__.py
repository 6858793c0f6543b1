"""Run the experiment of docs/experiment.md, or a part of it.

Run     make experiment BLOCK=main                  everything that a block needs, as DVC stages
        python -m extras.experiment material        the records and the test sets
        python -m extras.experiment base a2         a base model of the ladder; about 20 minutes on one core
        python -m extras.experiment run main        the cells of a block that are missing
        python -m extras.experiment cell main/a2-full-500-s1    a stored cell again, and what differs
        python -m extras.experiment answers main    the answers; `answers main more` is the second look
        python -m extras.experiment attack a2-full-6500-s1    how a cell's PRM resists being gamed
        python -m extras.experiment attacked        the table of the attacks
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extras.experiment.plan import CELLS, FOLDER, SHARES, Cell, load_plan
from ground.io import DataError, read_json, write_json
from ground.progress import Progress
from ground.text import errors_without_traceback

if TYPE_CHECKING:
    from extras.experiment.cell import Laboratory

_LABORATORY: list[Laboratory] = []
"""At most one per process, so that each process reads the test sets once."""


def laboratory() -> Laboratory:
    """The laboratory of this process."""
    from extras.experiment.cell import Laboratory

    if not _LABORATORY:
        _LABORATORY.append(Laboratory(load_plan()))
    return _LABORATORY[0]


def path_of(block: str, cell: Cell) -> Path:
    """The file of a cell's figures."""
    return CELLS / block / f"{cell.name}.json"


def measure(path: Path, cell: Cell) -> Path:
    """Measure a cell in this process and write its figures."""
    write_json(path, laboratory().measure(cell))
    return path


def is_current(path: Path, cell: Cell) -> bool:
    """True if the figures of a cell are stored and the plan, the material and the base model are still theirs."""
    return path.exists() and read_json(path).get("identity") == laboratory().identity(cell)


def run(block: str, jobs: int, commit: bool) -> None:
    """Measure the cells of a block that are missing or have different inputs now.

    Each is stored when it ends, and committed to git if asked.
    """
    cells = {path_of(block, cell): cell for cell in load_plan().block(block).cells}
    waiting = {path: cell for path, cell in cells.items() if not is_current(path, cell)}
    spawn = multiprocessing.get_context("spawn")
    with (
        Progress(f"experiment {block}", len(cells), "cells") as progress,
        ProcessPoolExecutor(jobs, mp_context=spawn) as pool,
    ):
        progress.resume(len(cells) - len(waiting))
        for done in as_completed([pool.submit(measure, path, cell) for path, cell in waiting.items()]):
            path = done.result()
            if commit:
                subprocess.run(["git", "add", "--", str(path)], check=True)
                message = f"Add the figures of {path.stem}"
                subprocess.run(["git", "commit", "--quiet", "--message", message, "--", str(path)], check=True)
            progress.advance(note=path.stem)


def again(name: str) -> None:
    """Measure a stored cell again and print what differs; raises ``DataError`` if it is not stored."""
    block, _, rest = name.rpartition("/")
    cell = Cell.parse(rest)
    path = path_of(block, cell)
    if not path.exists():
        raise DataError(f"{path} does not exist; name a finished cell as BLOCK/CELL")
    stored, found = read_json(path), laboratory().measure(cell)
    differing = [key for key in ("identity", "processbench", "prmbench") if stored[key] != found[key]]
    for reading, figures in found["processbench"].items():
        before = stored["processbench"][reading]["f1"]
        print(f"{reading}: F1 {_shown(figures['f1'])} at 0, 3 and 10 % of not-optimal steps; stored {_shown(before)}")
    print(f"different: {', '.join(differing)} (stored by {stored['machine']})" if differing else "the same figures")


def _shown(f1: dict[str, Any]) -> str:
    return ", ".join(f"{f1[str(share)]:.2f}" for share in SHARES)


def attack(name: str, parts: Sequence[str], samples: int, steps: int) -> None:
    """Train the model of a cell and run the attacks that have no file yet, or the named ones; one file for each."""
    from extras.experiment.attacks import Attacked

    cell = Cell.parse(name)
    folder = FOLDER / "attacks" / name
    known = Attacked.parts(cell)
    if unknown := {*parts} - {*known}:
        raise DataError(f"no attack {', '.join(sorted(unknown))} on {cell.variant}; choose from {', '.join(known)}")
    waiting = parts or [part for part in known if not (folder / f"{part}.json").exists()]
    with tempfile.TemporaryDirectory() as temporary:
        attacked = Attacked(laboratory(), cell, Path(temporary), samples, steps)
        for part in waiting:
            write_json(folder / f"{part}.json", attacked.measure(part))
    print(folder)


def print_answers(blocks: Sequence[str]) -> None:
    """Print the table of answers of the finished cells of blocks."""
    from extras.experiment.answers import HEADS, answers, read_cells, rows_of
    from extras.experiment.figures import read_judged
    from extras.experiment.material import MATERIAL
    from pathfinder.pages.page import markdown_table

    cells = {cell: figures for block in blocks for cell, figures in read_cells(CELLS / block).items()}
    print(markdown_table(HEADS, rows_of(answers(cells, read_judged(MATERIAL / "processbench")))))


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m extras.experiment", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("material", help="draw the records and the test sets")
    commands.add_parser("base", help="pretrain a base model of the ladder").add_argument("name")
    block = commands.add_parser("run", help="measure the missing cells of a block")
    block.add_argument("block")
    block.add_argument("--jobs", type=int, default=2, help="processes, each on one core (default: 2)")
    block.add_argument("--commit", action="store_true", help="commit the figures of each cell to git when it ends")
    commands.add_parser("cell", help="measure a stored cell again").add_argument("name", metavar="BLOCK/CELL")
    answered = commands.add_parser("answers", help="print the answers of the finished cells of blocks")
    answered.add_argument("blocks", nargs="+", metavar="BLOCK", help="main or, for the second look, main more")
    commands.add_parser("attacked", help="print the attacks that have ended")
    attacked = commands.add_parser("attack", help="train the PRM of a cell and try to game it; an hour")
    attacked.add_argument("name", metavar="CELL")
    attacked.add_argument(
        "parts", nargs="*", metavar="ATTACK", help="dressed, best_of_n, soundness-min, … (default: all)"
    )
    attacked.add_argument("--samples", type=int, default=1024, help="the largest n of best of n (default: 1024)")
    attacked.add_argument("--steps", type=int, default=300, help="steps of the policy that learns (default: 300)")
    given = parser.parse_args(argv)
    if given.command == "material":
        from extras.experiment.material import write_material

        write_material(load_plan())
    elif given.command == "base":
        from extras.experiment.bases import train_base

        train_base(given.name, load_plan())
    elif given.command == "run":
        run(given.block, given.jobs, given.commit)
    elif given.command == "cell":
        again(given.name)
    elif given.command == "attack":
        attack(given.name, given.parts, given.samples, given.steps)
    elif given.command == "attacked":
        from extras.experiment.attacks import DRESSED, HEADS, dressed_rows, rows_of
        from pathfinder.pages.page import markdown_table

        print(markdown_table(DRESSED, dressed_rows(FOLDER / "attacks")))
        if rows := rows_of(FOLDER / "attacks"):
            print(f"\n{markdown_table(HEADS, rows)}")
    else:
        print_answers(given.blocks)


if __name__ == "__main__":
    with errors_without_traceback():
        main()
