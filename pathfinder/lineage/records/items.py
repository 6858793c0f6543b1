"""The decisions on benchmark items, from the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from pathfinder.core.io import DataError
from pathfinder.lineage.records.selection import index_table


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
