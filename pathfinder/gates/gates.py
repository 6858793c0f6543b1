"""Gates: expectations about tables, and their results.

A gate is one expectation about one table. Great Expectations decides it (``pathfinder.gates.checker``); the gate also
has a Polars expression that finds the offending rows. Great Expectations accepts empty and all-null columns, and takes
``1.0`` and ``True`` for members of ``{0, 1}``. Suites therefore also state columns, types, row counts and presence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

UNIQUE = "ExpectColumnValuesToBeUnique"
PRESENT = "ExpectColumnValuesToNotBeNull"
_PANDAS_TYPES = {"Int8": "int8", "Int64": "int64", "String": "str", "Float64": "float64", "Boolean": "bool"}
Value = int | str | None


@dataclass(frozen=True, slots=True)
class Gate:
    """One expectation about the rows in which the columns of ``where`` have these values (None is null).

    ``broken`` selects the offending rows; None if the gate is about the whole table.
    """

    expectation: str  # the class name in great_expectations.expectations
    arguments: Mapping[str, Any]
    says: str
    where: Mapping[str, Value] = field(default_factory=dict)
    broken: pl.Expr | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the gate depends on; empty if it is about the whole table."""
        column = self.arguments.get("column")
        return () if column is None else (column, *self.where)

    def offenders(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows that break the gate; none if ``table`` has not all of its columns."""
        if self.broken is None or not set(self.broken.meta.root_names()) <= set(table.columns):
            return table.clear()
        return table.filter(
            self.broken, *(pl.col(name).eq_missing(pl.lit(value)) for name, value in self.where.items())
        )


@dataclass(frozen=True, slots=True)
class Suite:
    """The gates of one table; ``file`` is named in errors, ``key`` is the column that identifies a row."""

    name: str
    file: str
    key: str
    table: pl.DataFrame
    gates: tuple[Gate, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a gate. ``broken`` counts the offending rows; it is 0 if the gate is about the whole table."""

    suite: str
    file: str
    expectation: str
    says: str
    passed: bool
    rows: int
    broken: int
    examples: tuple[str, ...]
    observed: str

    def __str__(self) -> str:
        shown = f"; e.g. {', '.join(self.examples)}" if self.examples else ""
        seen = f"; found {self.observed}" if self.observed else ""
        count = f": {self.broken} of {self.rows} rows break it" if self.broken else ""
        return f"{self.file}: {self.expectation}: expected that {self.says}{count}{seen}{shown}"


def columns(schema: Mapping[str, Any]) -> tuple[Gate, ...]:
    """The table has exactly these columns, of exactly these types."""
    names = list(schema)
    types = {name: {"column": name, "type_": _PANDAS_TYPES[str(dtype)]} for name, dtype in schema.items()}
    return (
        Gate("ExpectTableColumnsToMatchOrderedList", {"column_list": names}, f"the columns are {', '.join(names)}"),
        *(Gate("ExpectColumnValuesToBeOfType", types[name], f"{name} is {dtype}") for name, dtype in schema.items()),
    )


def row_count(count: int, says: str) -> Gate:
    """The table has exactly ``count`` rows."""
    return Gate("ExpectTableRowCountToEqual", {"value": count}, f"{says} ({count} rows)")


def some_rows() -> Gate:
    """The table is not empty."""
    return Gate("ExpectTableRowCountToBeBetween", {"min_value": 1}, "there is at least one row")


def present(column: str, **where: Value) -> Gate:
    """A column has no null."""
    return Gate(PRESENT, {"column": column}, f"{column} is given", where, pl.col(column).is_null())


def absent(column: str, **where: Value) -> Gate:
    """A column has only nulls."""
    broken = pl.col(column).is_not_null()
    return Gate("ExpectColumnValuesToBeNull", {"column": column}, f"{column} is null", where, broken)


def unique(column: str) -> Gate:
    """The values of a column do not repeat."""
    return Gate(UNIQUE, {"column": column}, f"{column} does not repeat", {}, pl.col(column).is_duplicated())


def one_of(column: str, values: Sequence[Any], **where: Value) -> Gate:
    """A column has only these values, or null."""
    broken = pl.col(column).is_not_null() & ~pl.col(column).is_in(list(values))
    says = f"{column} is {' or '.join(map(str, values))}"
    return Gate("ExpectColumnValuesToBeInSet", {"column": column, "value_set": list(values)}, says, where, broken)


def none_of(column: str, values: Sequence[Any], **where: Value) -> Gate:
    """A column has none of these values."""
    broken = pl.col(column).is_in(list(values)).fill_null(False)
    says = f"{column} is not {' or '.join(map(str, values))}"
    return Gate("ExpectColumnValuesToNotBeInSet", {"column": column, "value_set": list(values)}, says, where, broken)


def within(column: str, low: float | None, high: float | None, says: str = "", **where: Value) -> Gate:
    """A column has numbers between two bounds, both included, or null."""
    below = pl.lit(False) if low is None else pl.col(column) < low
    above = pl.lit(False) if high is None else pl.col(column) > high
    limits = " and ".join([f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None))
    arguments = {"column": column, "min_value": low, "max_value": high}
    broken = (below | above).fill_null(False)
    return Gate("ExpectColumnValuesToBeBetween", arguments, says or f"{column} is {limits}", where, broken)


def matches(column: str, pattern: str, says: str) -> Gate:
    """A column has texts that match ``pattern``."""
    broken = ~pl.col(column).str.contains(pattern).fill_null(False)
    return Gate("ExpectColumnValuesToMatchRegex", {"column": column, "regex": pattern}, says, {}, broken)
