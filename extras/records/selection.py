"""Queries of the index: the decisions on benchmark items, and the records that a selector names.

A selector is a record, a line, a content id, a licence, a rater or a source.
Only the row groups that may hold the wanted lines are read, so the size of the index hardly matters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ground.io import DataError
from pathfinder.reporting.index import schema

_KIND = re.compile(r"(licence|rater|source):(.+)", re.DOTALL)
_CONTENT = re.compile(r"([0-9a-f]{32})(?:-(\d{1,9})-(\d{1,9}))?")
_ID = re.compile(r"([A-Za-z0-9_]+-[0-9a-f]{8}-(\d{1,18}))(?:-(\d{1,9})-(\d{1,9}))?")
_FORMS = "the id of a record or a line, a content id of 32 hexadecimal digits, licence:X, rater:X or source:X"


@dataclass(frozen=True, slots=True)
class Selection:
    """The records that a selector names.

    ``kind`` is record, line, content, licence, rater or source. ``lines`` and ``steps`` are the rows of the index; both
    are ``None`` for the last three kinds, whose counts the table of totals holds.
    """

    text: str
    kind: str
    value: str
    lines: pl.DataFrame | None = None
    steps: pl.DataFrame | None = None


def index_table(root: Path, name: str) -> pl.LazyFrame:
    """A table of the index; raises ``DataError`` if there is no index."""
    path = root / schema.INDEX / f"{name}.parquet"
    if not path.exists():
        raise DataError(f"{path}: no such file; make the index with `pathfinder run index`, or restore it: `dvc pull`")
    return pl.scan_parquet(path)


def select(text: str, root: Path) -> Selection:
    """The records that ``text`` names; raises ``DataError`` if it has no known form, or the index has none."""
    if match := _KIND.fullmatch(text):
        return _of_kind(text, match[1], match[2], root)
    if match := _CONTENT.fullmatch(text):
        kind, wanted = "content", pl.col("content") == match[1]
        place = match[2], match[3]
    elif match := _ID.fullmatch(text):
        kind = "line" if match[3] is None else "record"
        wanted = (pl.col("line") == int(match[2])) & (pl.col("id") == match[1])
        place = match[3], match[4]
    else:
        raise DataError(f"{text[:80]!r} names no records; expected {_FORMS}")
    lines = index_table(root, "lines").filter(wanted).collect()
    if lines.is_empty():
        raise DataError(f"{text}: the index has no such line; column id of {schema.INDEX}/lines.parquet lists them")
    steps = _steps_of(lines, root)
    if place[0] is not None and place[1] is not None:
        steps = steps.filter(position=int(place[0]), completion=int(place[1]))
        if steps.is_empty():
            raise DataError(f"{text}: the line has no such record; `pathfinder record {lines['id'][0]}` lists them")
    return Selection(text, kind, text, lines, steps)


def _of_kind(text: str, kind: str, value: str, root: Path) -> Selection:
    known = index_table(root, "totals").filter(kind=kind).select("value").unique().sort("value").collect()["value"]
    if value not in known:
        named = ", ".join(known.head(12)) + (", …" if len(known) > 12 else "")
        raise DataError(f"{text}: the index has no such {kind}; it has {named or 'none'}")
    return Selection(text, kind, value)


def _steps_of(lines: pl.DataFrame, root: Path) -> pl.DataFrame:
    numbers, ids = lines["line"].unique(), lines["id"].unique()
    return index_table(root, "steps").filter(one_of("line", numbers), one_of("line_id", ids)).collect()


def one_of(column: str, values: pl.Series) -> pl.Expr:
    """Select the rows that have one of some values; the range comes first, so the reader can skip row groups."""
    if values.is_empty():
        return pl.lit(False)
    in_range = pl.col(column).is_between(pl.lit(values.min()), pl.lit(values.max()))
    return in_range & pl.col(column).is_in(values.implode())


def totals(root: Path, kind: str, value: str) -> dict[str, dict[str, dict[str, Any]]]:
    """The rows of the totals for one selector, by ``what`` and ``name``."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in index_table(root, "totals").filter(kind=kind, value=value).collect().iter_rows(named=True):
        found.setdefault(row["what"], {})[row["name"]] = row
    return found


def decisions(root: Path, benchmark: str, system: str, item: str | None, only_wrong: bool) -> list[dict[str, Any]]:
    """The rows of ``schema.ITEMS`` of one system on one benchmark; raises ``DataError`` if there are none at all."""
    table = index_table(root, "items")
    rows = table.filter(benchmark=benchmark, system=system).collect()
    if rows.is_empty():
        pairs = table.select("benchmark", "system").unique().sort("benchmark", "system").collect().rows()
        known = ", ".join(f"{bench} {name}" for bench, name in pairs)
        raise DataError(f"{benchmark} {system}: the index has no such decisions; it has {known or 'none'}")
    if item is not None:
        rows = rows.filter(item=item)
        if rows.is_empty():
            raise DataError(f"{item}: {benchmark} of {system} has no such item")
    return (rows.filter(~pl.col("correct")) if only_wrong else rows).to_dicts()
