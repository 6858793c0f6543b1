"""Runs gates with Great Expectations. Only this module imports it, and only for a run, because that takes seconds."""

from __future__ import annotations

import gc
import logging
import operator
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import polars as pl

from ground.imports import without
from pathfinder.gates.gates import PRESENT, UNIQUE, Gate, Result, Suite, Value

_EXAMPLES = 5
_WHOLE_ROWS = 10_000  # up to this size, Great Expectations sees the whole table
_FEW_VALUES = 200  # columns of fewer distinct values are checked by their combinations
_NULLABLE = {"Int8": "Int8", "Int64": "Int64", "Boolean": "boolean"}
_Part = tuple[str, pl.DataFrame, list[int]]
"""A label, a part of a table, and the places of the gates that this part decides."""


class Checker:
    """Great Expectations with an in-memory context, the pandas back end, and telemetry switched off."""

    def __init__(self) -> None:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        # without packages for data sources, pictures and distribution tests, which no gate uses
        with without("boto3", "sqlalchemy", later=("altair", "scipy.stats")), _without_collector():
            import great_expectations
            from great_expectations.expectations import row_conditions

        self._gx: Any = great_expectations
        self._column: Any = row_conditions.Column
        self._context = self._gx.get_context(mode="ephemeral")
        self._context.enable_analytics(False)
        self._context.variables.progress_bars = {"globally": False}
        tables = self._context.data_sources.add_pandas("tables").add_dataframe_asset("table")
        self._data = tables.add_batch_definition_whole_dataframe("whole")

    def run(self, suites: Iterable[Suite], advance: Callable[[str], None] = lambda name: None) -> list[Result]:
        """One result per gate, in order; ``advance`` is called with the name of every finished suite.

        The next suite is prepared while one is checked, so an iterator does not hold all tables.
        """
        results: list[Result] = []
        for suite, parts in _prefetched((suite, _parts(suite)) for suite in suites):
            items: dict[int, Any] = {}
            for label, table, places in parts:
                gates = {place: suite.gates[place] for place in places}
                items |= self._validate(f"{suite.name} {label}".strip(), table, gates)
            results += [_result(suite, gate, items[place]) for place, gate in enumerate(suite.gates)]
            advance(suite.name)
        return results

    def write_docs(self, folder: Path) -> None:
        """Write Great Expectations' Data Docs of the tables that break a gate: local state, not an output of a stage.

        Raises ``OSError``, which names the file or ``folder``, if one of the pages cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())}
        index = {"class_name": "DefaultSiteIndexBuilder"}
        site = {"class_name": "SiteBuilder", "store_backend": store, "site_index_builder": index}
        self._context.add_data_docs_site("tables", site)
        pages = logging.getLogger("great_expectations.render.renderer.site_builder")
        pages.addFilter(_raise_system_error)
        try:
            self._context.build_data_docs(site_names=["tables"])  # without the context's default site
        except OSError as error:
            error.filename = error.filename or str(folder)  # a failed write names no file
            raise
        finally:
            pages.removeFilter(_raise_system_error)

    def _validate(self, name: str, table: pl.DataFrame, gates: Mapping[int, Gate]) -> dict[int, Any]:
        expectations = [self._expectation(gate, str(place)) for place, gate in gates.items()]
        suite, shown = self._gx.ExpectationSuite(name, expectations=expectations), {"dataframe": _pandas(table)}
        outcome = self._data.get_batch(shown).validate(suite, result_format="BOOLEAN_ONLY")
        if not outcome.success:  # once more in detail, for the error and the Data Docs
            added = self._context.suites.add(suite)
            definition = self._gx.ValidationDefinition(name=name, data=self._data, suite=added)
            outcome = self._context.validation_definitions.add(definition).run(
                batch_parameters=shown, result_format="SUMMARY"
            )
        return {int(item.expectation_config.meta["place"]): item for item in outcome.results}

    def _expectation(self, gate: Gate, place: str) -> Any:
        arguments = dict(gate.arguments) | {"meta": {"place": place}, "notes": gate.says}
        if gate.where:
            conditions = (self._condition(name, value) for name, value in gate.where.items())
            arguments["row_condition"] = reduce(operator.and_, conditions)
        return getattr(self._gx.expectations, gate.expectation)(**arguments)

    def _condition(self, name: str, value: Value) -> Any:
        column = self._column(name)
        return column.is_null() if value is None else column == value


@contextmanager
def _without_collector() -> Iterator[None]:
    """Imports make many lasting objects: do not search them for garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def _raise_system_error(_: logging.LogRecord) -> bool:
    """Raise a disk error, which Great Expectations would log with its traceback and then ignore."""
    error = sys.exception()
    if isinstance(error, OSError):
        raise error
    return True


def _result(suite: Suite, gate: Gate, item: Any) -> Result:
    rows, observed = suite.table.clear(), ""
    if not item.success:
        rows = gate.offenders(suite.table)
        # an expectation that raised an error has failed; the error's message counts as the observed value
        raised = item.exception_info.get("exception_message") if isinstance(item.exception_info, dict) else None
        observed = str(raised or item.result.get("observed_value") or "")
    examples = tuple(map(str, rows[suite.key].head(_EXAMPLES))) if suite.key in rows.columns else ()
    where = (f"{name} is null" if value is None else f"{name} == {value!r}" for name, value in gate.where.items())
    says = gate.says + (f" where {' and '.join(where)}" if gate.where else "")
    passed, count = bool(item.success), len(suite.table)
    return Result(suite.name, suite.file, gate.expectation, says, passed, count, len(rows), examples, observed)


def _prefetched(items: Iterator[tuple[Suite, list[_Part]]]) -> Iterator[tuple[Suite, list[_Part]]]:
    """The items; a thread makes the next item while the current one is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


def _parts(suite: Suite) -> list[_Part]:
    """The tables of a suite, in the form that Great Expectations sees.

    A rule about single rows holds for all rows if it holds for every distinct combination of the columns it reads. So
    for a large table, Great Expectations sees the distinct rows of the columns with few values, and the distinct values
    of each remaining column. Of a column that must be unique, it sees all values, as ranks. The row count is checked on
    a column of zeros.
    """
    table, gates = suite.table, suite.gates
    if len(table) <= _WHOLE_ROWS:
        return [("", table, list(range(len(gates))))]
    used = {name for gate in gates for name in gate.reads}
    few = {name for name in used if table[name].n_unique() <= _FEW_VALUES}
    keys = {gate.arguments["column"] for gate in gates if gate.expectation == UNIQUE}
    groups = defaultdict[str, list[int]](list)
    for place, gate in enumerate(gates):
        column = gate.arguments.get("column")
        if column is None:
            label = "rows"
        elif few.issuperset(gate.reads):
            label = "values"
        elif column in keys and gate.expectation in (UNIQUE, PRESENT) and not gate.where:
            label = f"{column} ranks"
        else:
            label = str(column)
        groups[label].append(place)
    parts = []
    for label, places in groups.items():
        read = list(dict.fromkeys(name for place in places for name in gates[place].reads))
        if label == "rows":
            shown = pl.select(row=pl.repeat(0, len(table), dtype=pl.Int8))
        elif label.endswith(" ranks"):
            shown = table.select(pl.col(read).rank("dense").cast(pl.Int64))
        else:
            shown = table.select(read).unique(maintain_order=True)
        parts.append((label, shown, places))
    return parts


def _pandas(table: pl.DataFrame) -> Any:
    """The table for Great Expectations; integers remain integers if the column has nulls."""
    with_nulls = [name for name in table.columns if table[name].null_count()]
    kinds = {name: _NULLABLE.get(str(table.schema[name])) for name in with_nulls}
    return table.to_pandas().astype({name: kind for name, kind in kinds.items() if kind})
