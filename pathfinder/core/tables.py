"""Writes a table that does not fit into memory to one Parquet file, atomically."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow
import pyarrow.parquet

from ground.io import DataError, atomic_file

_ROWS = 50_000
_CHARS = 64_000_000


class TableWriter:
    """Collects rows of ``schema`` and writes them one row group at a time. Equal rows give equal bytes."""

    def __init__(self, schema: dict[str, Any], writer: pyarrow.parquet.ParquetWriter) -> None:
        self.rows = 0
        self._schema, self._writer = schema, writer
        self._texts = [place for place, dtype in enumerate(schema.values()) if dtype == pl.String]
        self._pending: list[tuple[Any, ...]] = []
        self._tables: list[pyarrow.Table] = []
        self._chars = 0

    def add(self, *row: Any) -> None:
        """Add one row, with its values in the order of the schema."""
        self._pending.append(row)
        for place in self._texts:
            self._chars += len(row[place] or "")
        self.rows += 1
        if len(self._pending) >= _ROWS or self._chars >= _CHARS:
            self.flush()

    def add_table(self, table: pyarrow.Table) -> None:
        """Add the rows of an ``arrow_table`` of the same schema."""
        if self._pending:
            self.flush()
        self._tables.append(table)
        self.rows += len(table)
        if sum(map(len, self._tables)) >= _ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the collected rows as one row group."""
        if self._pending:
            self._tables.append(arrow_table(self._schema, self._pending))
            self._pending, self._chars = [], 0
        if self._tables:
            self._writer.write_table(pyarrow.concat_tables(self._tables))
            self._tables = []


@contextmanager
def table_writer(path: Path, schema: dict[str, Any], kept: Path | None = None) -> Iterator[TableWriter]:
    """Yield a writer; the file appears at ``path`` if the block succeeds.

    If the block raises ``DataError``, ``kept`` receives the rows so far, as JSON lines for a person to read.
    """
    with atomic_file(path) as temporary:
        arrow_schema = arrow_table(schema, []).schema
        try:
            with (
                temporary.open("wb") as file,  # Arrow's own files hide the cause of a failure
                pyarrow.parquet.ParquetWriter(file, arrow_schema, compression="zstd") as writer,
            ):
                table = TableWriter(schema, writer)
                try:
                    yield table
                except DataError:
                    table.flush()
                    raise
                table.flush()
        except DataError:
            if kept is not None:
                with atomic_file(kept) as lines:
                    pl.scan_parquet(temporary).sink_ndjson(lines)
            raise


@contextmanager
def table_writers(
    folder: Path, schemas: Mapping[str, dict[str, Any]], kept: Mapping[str, Path] | None = None
) -> Iterator[dict[str, TableWriter]]:
    """Yield a ``table_writer`` for each name of ``schemas``, with its path in ``kept``, if any."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(table_writer(folder / f"{name}.parquet", schema, (kept or {}).get(name)))
            for name, schema in schemas.items()
        }


def arrow_table(schema: dict[str, Any], rows: list[tuple[Any, ...]]) -> pyarrow.Table:
    """Rows as an Arrow table that ``TableWriter`` accepts."""
    frame = pl.DataFrame(rows, schema=schema, orient="row", strict=True)
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
