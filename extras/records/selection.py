"""Queries of the index: the decisions on benchmark items, and the records that a selector names.

A selector is a record, a line, a content id, or ``COLUMN:VALUE`` with a column of the index: ``licence:MIT``,
``reason:limit``, ``mixes:400k``. Four columns are derived: ``fate:kept``; ``run:R`` for the records that a run trained
on; ``retried:N`` for records on which the judge was asked again at least N times; ``item:ID`` for records with the
problem of a benchmark item or a near duplicate of it. For a line, only the row groups that may hold it are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ground.io import DataError
from pathfinder.reporting.index import schema

_COLUMN = re.compile(r"([a-z_]+):(.+)", re.DOTALL)
_COUNTED = ("licence", "rater", "source")
"""The columns whose counts the table of totals holds."""
_LINES = ("file", "folder", "licence", "rater", "sha256", "source")
_STEPS = ("answers", "detail", "group", "left_out_by", "mixes", "outcome", "rating", "reason", "side", "stage", "fate")
OVERLAP, TRAJECTORIES = Path("artifacts/overlap"), Path("artifacts/steps/trajectories.parquet")
_CONTENT = re.compile(r"([0-9a-f]{32})(?:-(\d{1,9})-(\d{1,9}))?")
_ID = re.compile(r"([A-Za-z0-9_]+-[0-9a-f]{8}-(\d{1,18}))(?:-(\d{1,9})-(\d{1,9}))?")
_FORMS = (
    "the id of a record or a line, a content id of 32 hexadecimal digits, or COLUMN:VALUE with the column item, run, "
    f"retried, {', '.join(sorted((*_LINES, *_STEPS)))}"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The records that a selector names.

    ``kind`` is record, line, content, or a column. ``lines`` and ``steps`` are the rows of the index; both are ``None``
    for a licence, a rater or a source, unless the caller asked for rows, because the table of totals has their counts.
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


def is_selector(text: str) -> bool:
    """True if the text has the form of a selector."""
    return any(form.fullmatch(text) for form in (_COLUMN, _CONTENT, _ID))


def select(text: str, root: Path, with_rows: bool = False) -> Selection:
    """The records that ``text`` names; ``with_rows`` reads their rows even if the counts are known.

    Raises ``DataError`` if it has no known form, or the index has none.
    """
    if match := _COLUMN.fullmatch(text):
        return _of_column(text, match[1], match[2], root, with_rows)
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


def _of_column(text: str, name: str, value: str, root: Path, with_rows: bool) -> Selection:
    lines, steps = index_table(root, "lines"), index_table(root, "steps")
    if name in _COUNTED:
        _require(value, index_table(root, "totals").filter(kind=name).select("value"), name)
        if not with_rows:
            return Selection(text, name, value)
    if name in _LINES or name == "item":
        by_source = (pl.col("source") == value) | (pl.col("folder") == value)
        wanted = by_source if name == "source" else pl.col(name) == value if name != "item" else _has_item(value, root)
        found = lines.filter(wanted).collect()
        if found.is_empty() and name != "item":
            _require(value, lines.select(name), name)
        return Selection(text, name, value, found, _steps_of(found, root))
    rows = steps.filter(_has(name, value, root)).collect()
    if rows.is_empty() and name in _STEPS:
        columns = steps.select(schema.fate().alias(name) if name == "fate" else name)
        _require(value, columns.explode(name) if isinstance(schema.STEPS.get(name), pl.List) else columns, name)
    return Selection(text, name, value, lines.filter(pl.col("id").is_in(rows["line_id"].implode())).collect(), rows)


def _has(name: str, value: str, root: Path) -> pl.Expr:
    """Select the steps with a value of a column; raises ``DataError`` for a column that no selector has."""
    if name == "fate":
        return schema.fate() == value
    if name == "retried":
        if not re.fullmatch(r"[1-9]\d{0,8}", value):
            raise DataError(f"retried:{value[:80]}: expected a number of further answers from 1, such as retried:1")
        return pl.col("answers").list.len() > int(value)
    if name == "run":
        path = root / schema.INDEX / schema.run_file(value)
        if not path.exists():
            known = ", ".join(sorted(file.stem for file in path.parent.glob("*.parquet")))
            raise DataError(f"run:{value[:80]}: the index has no such run; it has {known or 'none'}")
        used = pl.scan_parquet(path).filter(pl.col("tokens").is_null()).select("id").collect()["id"]
        return pl.col("id").is_in(used.implode())
    if name not in _STEPS:
        raise DataError(f"{name}:{value[:80]} names no records; expected {_FORMS}")
    column = pl.col(name)
    return column.list.contains(value) if isinstance(schema.STEPS[name], pl.List) else column.cast(pl.String) == value


def _has_item(item: str, root: Path) -> pl.Expr:
    """Select the lines with the problem of a benchmark item, or with a near duplicate of it."""
    problems = overlap_of(item, root)["problem"]
    known = pl.scan_parquet(root / TRAJECTORIES).filter(
        pl.col("problem_id").is_in([row["problem_id"] for row in problems])
    )
    return pl.col("id").is_in(known.select("trajectory_id").collect()["trajectory_id"].implode())


def overlap_of(item: str, root: Path) -> dict[str, list[dict[str, Any]]]:
    """The training problems and steps that repeat a benchmark item exactly or nearly. Its name is ID or SUBSET/ID.

    The build compares the trees of all records that the filter kept. Raises ``DataError`` if the item is unknown.
    """
    found = {}
    for what, table in (("problem", "overlap"), ("steps", "steps")):
        if not (path := root / OVERLAP / f"{table}.parquet").exists():
            raise DataError(f"{path}: no such file; make it with `pathfinder run build`, or restore it: `dvc pull`")
        name = pl.format("/{}/{}", "benchmark", "benchmark_id")
        found[what] = pl.scan_parquet(path).filter(name.str.ends_with(f"/{item}")).collect().to_dicts()
    if not any(found.values()):
        names = index_table(root, "items").select(item=pl.format("{}/{}", "part", "item"))
        if names.filter(("/" + pl.col("item")).str.ends_with(f"/{item}")).collect().is_empty():
            _require(item, names, "item")
    return found


def _require(value: str, column: pl.LazyFrame, name: str) -> None:
    """Raise ``DataError`` with some known values if a column lacks one."""
    known = column.unique().collect().to_series().cast(pl.String).drop_nulls().sort()
    if value not in known:
        named = ", ".join(known.head(12)) + (", …" if len(known) > 12 else "")
        raise DataError(f"{name}:{value[:80]}: the index has no such {name}; it has {named or 'none'}")


def _steps_of(lines: pl.DataFrame, root: Path) -> pl.DataFrame:
    numbers, ids = lines["line"].unique(), lines["id"].unique()
    return index_table(root, "steps").filter(one_of("line", numbers), one_of("line_id", ids)).collect()


def one_of(column: str, values: pl.Series) -> pl.Expr:
    """Select the rows with one of some values; the range comes first, so the reader can skip row groups."""
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
    """The rows of ``schema.ITEMS`` of one system on one benchmark; raises ``DataError`` if there are none."""
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
