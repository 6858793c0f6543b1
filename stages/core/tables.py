"""Writing tables that need not fit into memory: rows in, one atomic Parquet file out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow
import pyarrow.parquet

from stages.core.io import atomic_file

_ROWS = 50_000
_CHARS = 64_000_000


class TableWriter:
    """Rows of ``schema``, held until a row group is full. Equal rows give equal bytes."""

    def __init__(self, schema: dict[str, Any], writer: pyarrow.parquet.ParquetWriter) -> None:
        self.rows = 0
        self._schema, self._writer = schema, writer
        self._texts = [place for place, dtype in enumerate(schema.values()) if dtype == pl.String]
        self._pending: list[tuple[Any, ...]] = []
        self._chars = 0

    def add(self, *row: Any) -> None:
        """Add one row, its values in the schema's order."""
        self._pending.append(row)
        for place in self._texts:
            self._chars += len(row[place] or "")
        self.rows += 1
        if len(self._pending) >= _ROWS or self._chars >= _CHARS:
            self.flush()

    def flush(self) -> None:
        """Write what is held as one row group."""
        if self._pending:
            self._writer.write_table(_arrow(self._schema, self._pending))
            self._pending, self._chars = [], 0


@contextmanager
def table_writer(path: Path, schema: dict[str, Any]) -> Iterator[TableWriter]:
    """A writer whose file appears at ``path`` when the block ends well."""
    with atomic_file(path) as temporary:
        arrow_schema = _arrow(schema, []).schema
        with pyarrow.parquet.ParquetWriter(temporary, arrow_schema, compression="zstd") as writer:
            table = TableWriter(schema, writer)
            yield table
            table.flush()


def _arrow(schema: dict[str, Any], rows: list[tuple[Any, ...]]) -> pyarrow.Table:
    frame = pl.DataFrame(rows, schema=schema, orient="row", strict=True)
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
