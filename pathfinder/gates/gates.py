"""Gates: what a table must fulfil, decided by Great Expectations, with the offending ids found by Polars.

A gate says one thing about one table and names the file that breaks it. Great Expectations alone would pass an empty
or an all-null column, ``1.0`` and ``True`` as members of ``{0, 1}``: suites therefore state columns, types, row counts
and presence too. This is the only module that imports Great Expectations, and it does so when the first suite runs (the
import takes seconds).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import polars as pl

_EXAMPLES = 5
_WHOLE = 10_000  # rows up to which Great Expectations sees a table as it is
_NARROW = 200  # distinct values up to which columns are shown as their combinations
_UNIQUE = "ExpectColumnValuesToBeUnique"
_ABOUT_WHICH = (_UNIQUE, "ExpectColumnValuesToNotBeNull")  # about which values are equal or missing, not what they are
_PANDAS_TYPES = {"Int8": "int8", "Int64": "int64", "String": "str", "Float64": "float64", "Boolean": "bool"}
_NULLABLE = {"Int8": "Int8", "Int64": "Int64", "Boolean": "boolean"}

Operator = Literal["==", "!=", "is null", "is not null"]
_Part = tuple[str, pl.DataFrame, list[int]]


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on one column; a gate's conditions are joined by "and"."""

    column: str
    operator: Operator
    value: int | str | None = None

    def __str__(self) -> str:
        return f"{self.column} {self.operator}" + ("" if self.value is None else f" {self.value!r}")

    def as_polars(self) -> pl.Expr:
        """The rows that the condition picks."""
        column = pl.col(self.column)
        match self.operator:
            case "==":
                return (column == self.value).fill_null(False)
            case "!=":
                return (column != self.value).fill_null(False)
            case "is null":
                return column.is_null()
            case "is not null":
                return column.is_not_null()


@dataclass(frozen=True, slots=True)
class Gate:
    """One expectation; ``broken`` picks the rows against it (``None``: it is about the table as a whole)."""

    expectation: str  # the class name in great_expectations.expectations
    arguments: Mapping[str, Any]
    says: str
    where: tuple[Where, ...] = ()
    broken: pl.Expr | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that decide it; none where it is about the table as a whole."""
        column = self.arguments.get("column")
        return () if column is None else (column, *(where.column for where in self.where))

    def offenders(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows that break the gate; none where the table lacks a column that the gate is about."""
        if self.broken is None or not set(self.broken.meta.root_names()) <= set(table.columns):
            return table.clear()
        picked = reduce(lambda left, right: left & right, (w.as_polars() for w in self.where), pl.lit(True))
        return table.filter(picked & self.broken)


@dataclass(frozen=True, slots=True)
class Suite:
    """The gates of one table; ``file`` is what a failure names, ``key`` the column that identifies a row."""

    name: str
    file: str
    key: str
    table: pl.DataFrame
    gates: tuple[Gate, ...]


_Ready = tuple[Suite, list[_Part]]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a gate; ``broken`` counts the offending rows, 0 where the gate is about the table as a whole."""

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
    listed = Gate(
        "ExpectTableColumnsToMatchOrderedList",
        {"column_list": names},
        f"the columns are {', '.join(names)}",
    )
    types = (
        Gate(
            "ExpectColumnValuesToBeOfType",
            {"column": name, "type_": _PANDAS_TYPES[str(dtype)]},
            f"{name} is {dtype}",
        )
        for name, dtype in schema.items()
    )
    return (listed, *types)


def row_count(count: int, says: str) -> Gate:
    """The table has exactly ``count`` rows."""
    return Gate("ExpectTableRowCountToEqual", {"value": count}, f"{says} ({count} rows)")


def some_rows() -> Gate:
    """The table is not empty."""
    return Gate("ExpectTableRowCountToBeBetween", {"min_value": 1}, "there is at least one row")


def present(column: str, *where: Where) -> Gate:
    """No null in a column."""
    broken = pl.col(column).is_null()
    return Gate("ExpectColumnValuesToNotBeNull", {"column": column}, f"{column} is given", where, broken)


def absent(column: str, *where: Where) -> Gate:
    """Nothing but null in a column."""
    broken = pl.col(column).is_not_null()
    return Gate("ExpectColumnValuesToBeNull", {"column": column}, f"{column} is null", where, broken)


def unique(column: str) -> Gate:
    """No value twice."""
    broken = pl.col(column).is_duplicated()
    return Gate(_UNIQUE, {"column": column}, f"{column} does not repeat", (), broken)


def one_of(column: str, values: Sequence[Any], *where: Where) -> Gate:
    """Only these values, or null."""
    broken = pl.col(column).is_not_null() & ~pl.col(column).is_in(list(values))
    says = f"{column} is {' or '.join(map(str, values))}"
    return Gate("ExpectColumnValuesToBeInSet", {"column": column, "value_set": list(values)}, says, where, broken)


def none_of(column: str, values: Sequence[Any], *where: Where) -> Gate:
    """None of these values."""
    broken = pl.col(column).is_in(list(values)).fill_null(False)
    says = f"{column} is not {' or '.join(map(str, values))}"
    return Gate("ExpectColumnValuesToNotBeInSet", {"column": column, "value_set": list(values)}, says, where, broken)


def within(column: str, low: float | None, high: float | None, *where: Where, says: str = "") -> Gate:
    """Numbers between two bounds, both included, or null."""
    below = pl.lit(False) if low is None else pl.col(column) < low
    above = pl.lit(False) if high is None else pl.col(column) > high
    broken = (below | above).fill_null(False)
    limits = " and ".join([f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None))
    arguments = {"column": column, "min_value": low, "max_value": high}
    return Gate("ExpectColumnValuesToBeBetween", arguments, says or f"{column} is {limits}", where, broken)


def matches(column: str, pattern: str, says: str) -> Gate:
    """Text that matches a regular expression from its start to its end."""
    broken = ~pl.col(column).str.contains(pattern).fill_null(False)
    return Gate("ExpectColumnValuesToMatchRegex", {"column": column, "regex": pattern}, says, (), broken)


def check(suites: Iterable[Suite], advance: Callable[[str], None] = lambda name: None) -> list[Result]:
    """Run every gate once; returns one result a gate, in order."""
    return Checker().run(suites, advance)


def _result(suite: Suite, gate: Gate, passed: bool, observed: str) -> Result:
    says = gate.says + (f" where {' and '.join(map(str, gate.where))}" if gate.where else "")
    broken, examples = 0, tuple[str, ...]()
    if not passed:
        rows = gate.offenders(suite.table)
        broken = len(rows)
        if suite.key in rows.columns:
            examples = tuple(str(value) for value in rows[suite.key].head(_EXAMPLES))
    rows_in = len(suite.table)
    return Result(suite.name, suite.file, gate.expectation, says, passed, rows_in, broken, examples, observed)


class Checker:
    """Great Expectations with an in-memory context, the pandas back end, and no word to anybody outside."""

    def __init__(self) -> None:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        import great_expectations
        from great_expectations.expectations import row_conditions

        self._gx: Any = great_expectations
        self._column: Any = row_conditions.Column
        context = self._gx.get_context(mode="ephemeral")
        context.enable_analytics(False)
        context.variables.progress_bars = {"globally": False}
        self._context = context
        tables = context.data_sources.add_pandas("tables").add_dataframe_asset("table")
        self._data = tables.add_batch_definition_whole_dataframe("whole")

    def run(self, suites: Iterable[Suite], advance: Callable[[str], None] = lambda name: None) -> list[Result]:
        """One result a gate, in order; ``advance`` is called with a suite's name when it is done.

        Suites are taken one by one, each made ready while the one before it is checked, so that an iterator need not
        hold all their tables.
        """
        results: list[Result] = []
        for suite, parts in _ahead((suite, _parts(suite)) for suite in suites):
            results += self._suite(suite, parts)
            advance(suite.name)
        return results

    def write_docs(self, folder: Path) -> None:
        """Great Expectations' Data Docs of everything that ran (local state, never an out)."""
        folder.mkdir(parents=True, exist_ok=True)
        store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())}
        index = {"class_name": "DefaultSiteIndexBuilder"}
        site = {"class_name": "SiteBuilder", "store_backend": store, "site_index_builder": index}
        self._context.add_data_docs_site("tables", site)
        self._context.build_data_docs(site_names=["tables"])  # not the context's own site, too

    def _suite(self, suite: Suite, parts: Iterable[_Part]) -> list[Result]:
        items: dict[int, Any] = {}
        for label, table, places in parts:
            items |= self._part(f"{suite.name} {label}".strip(), table, {at: suite.gates[at] for at in places})
        return [self._read(suite, gate, items[place]) for place, gate in enumerate(suite.gates)]

    def _part(self, name: str, table: pl.DataFrame, gates: Mapping[int, Gate]) -> dict[int, Any]:
        gx = self._gx
        expectations = [self._expectation(gate, str(place)) for place, gate in gates.items()]
        added = self._context.suites.add(gx.ExpectationSuite(name, expectations=expectations))
        definition = gx.ValidationDefinition(name=name, data=self._data, suite=added)
        outcome = self._context.validation_definitions.add(definition).run(
            batch_parameters={"dataframe": _pandas(table)}, result_format="SUMMARY"
        )
        return {int(item.expectation_config.meta["place"]): item for item in outcome.results}

    def _expectation(self, gate: Gate, place: str) -> Any:
        arguments = dict(gate.arguments) | {"meta": {"place": place}, "notes": gate.says}
        if gate.where:
            arguments["row_condition"] = reduce(lambda left, right: left & right, map(self._condition, gate.where))
        return getattr(self._gx.expectations, gate.expectation)(**arguments)

    def _condition(self, where: Where) -> Any:
        column = self._column(where.column)
        match where.operator:
            case "==":
                return column == where.value
            case "!=":
                return column != where.value
            case "is null":
                return column.is_null()
            case "is not null":
                return column.is_not_null()

    def _read(self, suite: Suite, gate: Gate, item: Any) -> Result:
        # an expectation that raised has not been met: say so instead of taking its silence for success
        raised = item.exception_info.get("exception_message") if isinstance(item.exception_info, dict) else None
        observed = item.result.get("observed_value")
        return _result(suite, gate, bool(item.success), "" if item.success else str(raised or observed or ""))


def _ahead(items: Iterator[_Ready]) -> Iterator[_Ready]:
    """The items, the next one made in a thread while one is used."""
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = beside.submit(next, items, None)
            yield item


def _parts(suite: Suite) -> list[_Part]:
    """What Great Expectations sees of a suite: labels, tables and the places of the gates that each decides.

    A rule about single rows holds for all of them when it holds for every distinct combination of the columns that it
    reads. Of a big table, columns with few values are shown as their distinct rows, another column as its distinct
    values; one that must not repeat in full, each value as its rank, which repeats or is null where the value does. How
    many rows there are is asked of a column of nothing.
    """
    table, gates = suite.table, suite.gates
    if len(table) <= _WHOLE or any("column_list" in gate.arguments for gate in gates):
        return [("", table, list(range(len(gates))))]
    used = dict.fromkeys(name for gate in gates for name in gate.reads)
    narrow = [name for name in used if table[name].n_unique() <= _NARROW]
    keys = {gate.arguments["column"] for gate in gates if gate.expectation == _UNIQUE}
    groups: dict[str, list[int]] = {}
    for place, gate in enumerate(gates):
        column = gate.arguments.get("column")
        if column is None:
            label = "rows"
        elif set(gate.reads) <= set(narrow):
            label = "values"
        elif column in keys and gate.expectation in _ABOUT_WHICH and not gate.where:
            label = f"{column} ranks"
        else:
            label = str(column)
        groups.setdefault(label, []).append(place)
    parts = []
    for label, places in groups.items():
        if label == "rows":
            shown = pl.select(row=pl.repeat(0, len(table), dtype=pl.Int8))
        elif label == "values":
            shown = table.select(narrow).unique(maintain_order=True)
        elif label.endswith(" ranks"):
            shown = table.select(pl.col(gates[places[0]].reads[0]).rank("dense").cast(pl.Int64))
        else:
            read = dict.fromkeys(name for place in places for name in gates[place].reads)
            shown = table.select(*read).unique(maintain_order=True)
        parts.append((label, shown, places))
    return parts


def _pandas(table: pl.DataFrame) -> Any:
    """The table for Great Expectations; integers stay integers beside nulls."""
    frame = table.to_pandas()
    with_nulls = [name for name in table.columns if table[name].null_count()]
    names = {name: kind for name in with_nulls if (kind := _NULLABLE.get(str(table.schema[name])))}
    return frame.astype(names)
