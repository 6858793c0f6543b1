"""Writes the index: the fate of every upstream line and rated step, which runs used it, and every decision.

Reads   artifacts/raw/{manifest.json,prmbench}, artifacts/{steps,labels,clean,train,used,predictions},
        artifacts/decisions.parquet; params: runs, baselines, critics, mixes, build.seed
Writes  artifacts/index/{lines,steps,totals,items}.parquet, artifacts/index/uses/<run>.parquet, metrics/index.json
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ground.io import DataError, atomic_folder, write_json
from ground.progress import Progress
from pathfinder.core.manifest import MANIFEST, read_manifest
from pathfinder.core.params import Params
from pathfinder.reporting.index import schema
from pathfinder.reporting.index.items import index_items
from pathfinder.reporting.index.steps import index_lines, index_steps
from pathfinder.reporting.index.totals import index_totals, left_out, run_uses

ARTIFACTS = Path("artifacts")
METRICS = Path("metrics/index.json")


def write_index(params: Params) -> None:
    """Write the tables of ``schema`` and metrics/index.json; raises ``DataError`` if the tables do not fit together."""
    manifest = read_manifest(MANIFEST)
    with Progress("index", 4, "tables") as progress, atomic_folder(schema.INDEX) as folder:
        lines = index_lines(ARTIFACTS / "steps/lines.parquet", manifest)
        schema.write_table(folder / "lines.parquet", lines, schema.LINES)
        progress.advance(note="uses")
        uses = {run: folder / schema.run_file(run) for run in params.runs}
        for run, path in uses.items():
            schema.write_table(path, run_uses(ARTIFACTS / f"used/{run}.parquet"), schema.USES)
        progress.advance(note="steps")
        steps = index_steps(ARTIFACTS, lines, params.mixes, params.build.seed, left_out(uses))
        schema.write_table(folder / "steps.parquet", steps, schema.STEPS)
        progress.advance(note="decisions")
        schema.write_table(folder / "totals.parquet", index_totals(lines, steps, uses), schema.TOTALS)
        systems = [*params.runs, *params.baselines, *params.critics]
        items = index_items(ARTIFACTS / "predictions", systems, ARTIFACTS / "raw/prmbench")
        schema.write_table(folder / "items.parquet", items, schema.ITEMS)
        _write_metrics(lines, steps, len(items))
        progress.advance()


def _write_metrics(lines: pl.DataFrame, steps: pl.DataFrame, items: int) -> None:
    """Count the steps by fate; raises ``DataError`` if one that no stage dropped is on no side."""
    lost = steps.filter(pl.col("stage").is_null() & pl.col("side").is_null())
    if len(lost):
        raise DataError(
            f"artifacts/decisions.parquet: {len(lost)} records, {lost['id'][0]} among them, were dropped without a "
            "reason; re-run filter and build"
        )
    fates = dict(steps.group_by(schema.fate().alias("fate")).len().sort("fate").iter_rows())
    kept = fates.pop("kept", 0)
    counts = {"read": len(steps), "kept": kept, "dropped": fates, "quarantined": {}}
    write_json(METRICS, counts | {"lines": len(lines), "decisions": items})
