"""Keep the tables of docs/fidelity.md equal to the profiles and to the constants of the code.

A table with a column "key" is checked. A key is a parameter (`train.epochs`), whose values in the profiles fill the
columns named after them, or a constant (`pathfinder.core.prompts:LABEL_TOKENS`), which fills the column "here".

Run     python -m docs.tools.fidelity           lists the cells that differ, and the differences that no note explains
        python -m docs.tools.fidelity --write   writes the values into the page
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any

import yaml

from ground.io import DataError, write_text
from ground.text import errors_without_traceback
from pathfinder.planning import profiles

PAGE = Path("docs/fidelity.md")
PAPER, CODE, NOTHING = "paper", "published code", "–"
_CELL = re.compile(r"(?<!\\)\|")


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A row of a checked table: its line on the page, its cells by column, and the values that its key has now."""

    line: int
    cells: Mapping[str, str]
    values: Mapping[str, str]

    @property
    def written(self) -> str:
        """The row as it should be."""
        cells = {**self.cells, **self.values}.values()
        return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"

    @property
    def unexplained(self) -> list[str]:
        """What differs from the paper or the published code without a note."""
        if self.cells["note"]:
            return []
        paper, code = self.cells[PAPER], self.cells[CODE]
        known = [cell for cell in (paper, code) if cell != NOTHING]
        found = ["the paper and the published code differ"] if len(set(known)) > 1 else []
        for column, value in self.values.items():
            official = [cell for cell in (code, paper) if cell != NOTHING]
            expected = official if "official" in column else known
            found += [f"{column} is {value}, not {expected[0]}"] if expected and expected[0] != value else []
        return found


def rows_of(text: str, root: Path) -> list[Row]:
    """The rows of every checked table; raises ``DataError`` if a key does not exist."""
    rows, header = list[Row](), list[str]()
    for number, line in enumerate(text.splitlines()):
        cells = [cell.strip() for cell in _CELL.split(line)[1:-1]] if line.startswith("|") else []
        if not cells:
            header = []
        elif not header:
            header = cells
        elif "key" in header and not set(line) <= set("|-: "):
            found = dict(zip(header, cells, strict=True))
            rows.append(Row(number, found, _values(found, root)))
    return rows


def filled(text: str, root: Path) -> str:
    """The page with the values of today."""
    lines = text.splitlines()
    for row in rows_of(text, root):
        lines[row.line] = row.written
    return "\n".join(lines) + "\n"


def _values(cells: Mapping[str, str], root: Path) -> dict[str, str]:
    key = cells["key"].strip("`")
    module, is_constant, name = key.partition(":")
    try:
        if is_constant:
            return {"here": _printed(reduce(_item, name.split("."), importlib.import_module(module)))}
        columns = [column for column in cells if column.startswith("`")]
        return {column: _printed(reduce(_item, key.split("."), profile(root, column.strip("`")))) for column in columns}
    except (ImportError, LookupError, AttributeError) as error:
        raise DataError(f"{PAGE}: {key} does not exist ({error!r}); correct the key") from None


@cache
def profile(root: Path, name: str) -> Any:
    """The complete parameters of a profile."""
    return yaml.safe_load(profiles.render(root, name))


def _item(found: Any, name: str) -> Any:
    """The part of a mapping, an object, or a list of named entries."""
    if isinstance(found, Mapping):
        return found[name]
    if isinstance(found, (list, tuple)):
        return found[int(name)] if name.isdigit() else {entry["name"]: entry for entry in found}[name]
    return getattr(found, name)


def _printed(value: Any) -> str:
    """A value as a cell: code, with pipes and line breaks escaped."""
    if isinstance(value, (list, tuple)):
        text = ", ".join(map(str, value))
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return "`" + text.replace("\n", "\\n").replace("|", "\\|") + "`"


def main(argv: Sequence[str] | None = None) -> None:
    """Check or write the page; raises ``DataError`` if a key does not exist."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.tools.fidelity", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--write", action="store_true", help="write docs/fidelity.md")
    arguments = parser.parse_args(argv)
    text, root = PAGE.read_text(encoding="utf-8"), Path()
    rows = rows_of(text, root)
    lines = text.splitlines()
    for row in rows:
        if lines[row.line] != row.written:
            print(f"{PAGE}:{row.line + 1}: should be {row.written}")
        for reason in row.unexplained:
            print(f"{PAGE}:{row.line + 1}: {reason}; explain it in the column note")
    if arguments.write:
        write_text(PAGE, filled(text, root))
    elif filled(text, root) != text or any(row.unexplained for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    with errors_without_traceback():
        main()
