"""Measure many cells: one by one on the cores, or in stacks on a GPU.

These functions run in spawned processes, which never import the ``__main__`` of a package.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from extras.experiment.cell import Laboratory
from extras.experiment.plan import CELLS, Cell, load_plan
from extras.experiment.stacked import gpu_name, noise_of, scored, scores_of
from ground.io import read_json, write_json


@cache
def laboratory() -> Laboratory:
    """The laboratory of this process, which reads the test sets once."""
    return Laboratory(load_plan())


def path_of(block: str, cell: Cell) -> Path:
    """The file of a cell's figures."""
    return CELLS / block / f"{cell.name}.json"


def figures_of(block: str, cell: Cell) -> dict[str, Any]:
    """Measure a cell in this process."""
    return laboratory().measure(block, cell, noise_of(laboratory(), block, cell, "cpu"))


def measure(path: Path, cell: Cell) -> Path:
    """Measure a cell in this process and write its figures."""
    write_json(path, figures_of(path.parent.name, cell))
    return path


def is_current(path: Path, cell: Cell) -> bool:
    """True if the figures of a cell are stored, and the plan, material and base model have not changed since."""
    return path.exists() and read_json(path).get("identity") == laboratory().identity(path.parent.name, cell)


def measured(waiting: Mapping[Path, Cell], jobs: int, stack: int) -> Iterator[Path]:
    """Measure cells in ``jobs`` processes, or with a GPU in stacks of ``stack`` seeds; each file when it is written."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        if stack:
            yield from _stacked(pool, waiting, stack)
        else:
            for path, cell in waiting.items():
                noise_of(laboratory(), path.parent.name, cell, "cpu")  # once for all processes
            made = [pool.submit(measure, path, cell) for path, cell in waiting.items()]
            yield from (future.result() for future in as_completed(made))


def _stacked(pool: ProcessPoolExecutor, waiting: Mapping[Path, Cell], most: int) -> Iterator[Path]:
    """Train and score on the GPU, cells that differ only in their seed together; the pool makes the figures."""
    gpu, made = gpu_name(), list[Future[Path]]()
    for paths in stacks(waiting, most):
        cells = [waiting[path] for path in paths]
        found = scored(laboratory(), paths[0].parent.name, cells, "cuda")
        for path, (cell, margins, notes) in zip(paths, found, strict=True):
            made.append(pool.submit(figures, path, cell, margins, notes, gpu))
        ended = {future for future in made if future.done()}
        yield from (future.result() for future in ended)
        made = [future for future in made if future not in ended]
    yield from (future.result() for future in as_completed(made))


def stacks(cells: Mapping[Path, Cell], most: int) -> list[list[Path]]:
    """The files of cells in lists of at most ``most`` that differ only in their seed."""
    alike: dict[tuple[Path, Cell], list[Path]] = {}
    for path, cell in cells.items():
        alike.setdefault((path.parent, replace(cell, seed=0)), []).append(path)
    return [mine[first : first + most] for mine in alike.values() for first in range(0, len(mine), most)]


def figures(path: Path, cell: Cell, margins: Any, notes: Mapping[str, Any], gpu: str) -> Path:
    """Write the figures of a cell that was scored in a stack."""
    bench = laboratory()
    write_json(path, bench.figures(path.parent.name, cell, scores_of(bench, cell, margins), notes, gpu))
    return path
