"""The results of a finished run, and how they compare with the figures of README.md, the committed run's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ground.io import read_json
from pathfinder.core.params import load_params
from pathfinder.reporting.names import PUBLISHED, TABLES
from pathfinder.reporting.results import printed_rows, read_tables

_FIGURE = re.compile(r"(-?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\]")
_NAMED = 4


def tables_of_run() -> Path | None:
    """The file with the results of the active profile; ``None`` before the benchmarks were evaluated."""
    if not Path("metrics/processbench").is_dir():
        return None
    return PUBLISHED if load_params().comparisons else TABLES


def result_rows(tables: Path | None) -> list[dict[str, Any]]:
    """The rows of the results in a file, without the places that they come from; none without a file."""
    rows = read_tables(tables)["results"] if tables is not None else []
    return [{key: value for key, value in row.items() if key != "origins"} for row in rows]


def agreement(root: Path) -> Iterator[str]:
    """Say how many figures of the run are inside the 95 % intervals of README.md; nothing without both."""
    if not (root / TABLES).exists() or not (root / "README.md").exists():
        return
    count, outside = figures_outside((root / "README.md").read_text(encoding="utf-8"), read_json(root / TABLES))
    if outside:
        more = f" and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
        named = "; ".join(outside[:_NAMED]) + more
        yield f"{len(outside)} of {count} figures are outside the 95 % intervals of README.md: {named}"
    elif count:
        yield f"the figures agree: all {count} are inside the 95 % intervals of README.md"


def figures_outside(readme: str, tables: Mapping[str, object]) -> tuple[int, list[str]]:
    """The number of figures in both the README's results and ``tables``, and those outside the README's intervals."""
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in readme.splitlines() if "[" in line]
    known = {cells[0]: cells[1:] for cells in rows[::-1]}  # the main table is the first
    count, outside = 0, []
    (_, *columns), *lines = printed_rows(tables)
    for label, *cells in lines:
        for column, cell, committed in zip(columns, cells, known.get(label, ()), strict=False):
            found, expected = _FIGURE.match(cell), _FIGURE.match(committed)
            if found and expected:
                count += 1
                value, low, high = float(found[1]), float(expected[2]), float(expected[3])
                if not low <= value <= high:
                    outside.append(f"{label}, {column}: {found[1]}, committed {committed}")
    return count, outside
