"""Measure many cells. These functions run in spawned processes, which never import the ``__main__`` of a package."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path

from extras.experiment.cell import Laboratory
from extras.experiment.plan import CELLS, Cell, load_plan
from ground.io import read_json, write_json


@cache
def laboratory() -> Laboratory:
    """The laboratory of this process, which reads the test sets once."""
    return Laboratory(load_plan())


def path_of(block: str, cell: Cell) -> Path:
    """The file of a cell's figures."""
    return CELLS / block / f"{cell.name}.json"


def measure(path: Path, cell: Cell) -> Path:
    """Measure a cell in this process and write its figures."""
    write_json(path, laboratory().measure(path.parent.name, cell))
    return path


def is_current(path: Path, cell: Cell) -> bool:
    """True if the figures of a cell are stored, and the plan, material and base model have not changed since."""
    return path.exists() and read_json(path).get("identity") == laboratory().identity(path.parent.name, cell)


def measured(waiting: Mapping[Path, Cell], jobs: int) -> Iterator[Path]:
    """Measure cells in ``jobs`` processes; each file when it is written."""
    for path, cell in waiting.items():
        laboratory().noise(path.parent.name, cell)  # once for all processes
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        made = [pool.submit(measure, path, cell) for path, cell in waiting.items()]
        yield from (future.result() for future in as_completed(made))
