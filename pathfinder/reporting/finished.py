"""The results of a finished run, and how they compare with the figures of README.md, the committed run's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, model_validator

from ground.io import read_json
from ground.show import aligned
from pathfinder.core.metrics import Metrics, Number, checked
from pathfinder.core.params import load_params
from pathfinder.reporting.names import COLUMNS, PUBLISHED, TABLES
from pathfinder.reporting.results import Score

_FIGURE = re.compile(r"(-?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\]")
_NAMED = 4


def _plain(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("empty or with control characters")
    return text


Text = Annotated[str, AfterValidator(_plain)]
"""A text for a terminal."""


class _Score(Metrics):
    value: Number
    low: Number
    high: Number
    reading: Annotated[str, Field(pattern="^[a-z ]*$")] = ""


class _Row(Metrics):
    """A row: the keys below, and the cells of ``COLUMNS``."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _Score | Text]
    system: Text
    is_baseline: bool = False
    origins: Any = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if missing := [key for key in COLUMNS if key not in self.__pydantic_extra__]:
            raise ValueError(f"no {', '.join(missing)}")
        return self

    @property
    def texts(self) -> tuple[str, ...]:
        """The name of the system and its cells as texts."""
        cells = [self.__pydantic_extra__[key] for key in COLUMNS]
        return (self.system, *(cell if isinstance(cell, str) else str(Score(**cell.as_json())) for cell in cells))


class Tables(Metrics):
    """``reports/tables.json``, as far as it is read again."""

    results: list[_Row]
    toy: bool = False
    truth: Sequence[Text] = ()


def tables_of_run() -> Path | None:
    """The file with the results of the active profile; ``None`` before the benchmarks were evaluated."""
    if not Path("metrics/processbench").is_dir():
        return None
    return PUBLISHED if load_params().comparisons else TABLES


def read_tables(path: Path = TABLES) -> Tables | None:
    """``reports/tables.json``, ``None`` if it does not exist; raises ``DataError`` if it does not have its form."""
    return parse_tables(read_json(path), path) if path.exists() else None


def parse_tables(content: Any, path: Path = TABLES) -> Tables:
    """The content of ``reports/tables.json``; raises ``DataError`` if it does not have its form."""
    return checked(TypeAdapter(Tables), content, path, extra="allow")


def result_rows(path: Path | None) -> list[dict[str, Any]]:
    """The rows of the results in a file, without the places that they come from; none without a file."""
    found = read_tables(path) if path is not None else None
    return [row.model_dump(exclude={"origins"}) for row in found.results] if found else []


def printed_rows(tables: Tables) -> list[tuple[str, ...]]:
    """The headers and the main results."""
    headers = ("system (toy sets)" if tables.toy else "system", *COLUMNS.values())
    return [headers, *(row.texts for row in tables.results)]


def results_table(path: Path = TABLES) -> str:
    """The report's main results as plain text: percent with intervals.

    Raises ``DataError`` if the file does not have its form.
    """
    found = read_tables(path)
    if found is None:
        return f"{path} does not exist yet; run `make run`\n"
    rows = printed_rows(found)
    rows.insert(1, tuple("-" * max(map(len, column)) for column in zip(*rows, strict=True)))
    return "\n".join([*aligned(rows), *(["", *found.truth] if found.truth else [])]) + "\n"


def agreement(root: Path) -> Iterator[str]:
    """Say how many figures of the run are inside the 95 % intervals of README.md; nothing without both."""
    if not (root / "README.md").exists() or (tables := read_tables(root / TABLES)) is None:
        return
    count, outside = figures_outside((root / "README.md").read_text(encoding="utf-8"), tables)
    if outside:
        more = f" and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
        named = "; ".join(outside[:_NAMED]) + more
        yield f"{len(outside)} of {count} figures are outside the 95 % intervals of README.md: {named}"
    elif count:
        yield f"the figures agree: all {count} are inside the 95 % intervals of README.md"


def figures_outside(readme: str, tables: Tables) -> tuple[int, list[str]]:
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
