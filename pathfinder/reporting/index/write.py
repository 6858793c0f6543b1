"""Writes the index: the fate of every upstream line and rated step, which runs used it, and every decision.

Reads   artifacts/raw/{manifest.json,prmbench}, artifacts/{steps,labels,clean,train,used,predictions},
        artifacts/decisions.parquet; params: runs, baselines, critics, mixes, build.seed
Writes  artifacts/index/{lines,steps,totals,items}.parquet, artifacts/index/uses/<run>.parquet, metrics/index.json
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from ground.io import DataError, atomic_folder
from ground.manifest import read_manifest
from ground.progress import Progress
from pathfinder.core.hub import MANIFEST
from pathfinder.core.metrics import Flow, Whole, write_metrics
from pathfinder.core.params import Params
from pathfinder.reporting.index import schema
from pathfinder.reporting.index.items import index_items
from pathfinder.reporting.index.schema import SELECTORS, TOTALS, USES, fate
from pathfinder.reporting.index.steps import index_lines, index_steps, parts_of_id

ARTIFACTS = Path("artifacts")
METRICS = Path("metrics/index.json")
_NO_STEPS = pl.lit(None, pl.Int64())
_COLUMNS = [column for _, column in SELECTORS]
_KINDS = (("all", "all"), *SELECTORS)


class Index(Flow):
    """Metrics of the stage index: the rated steps by fate, the upstream lines, and the decisions on benchmark items."""

    lines: Whole
    decisions: Whole


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
    figures = Index(read=len(steps), kept=kept, dropped=fates, quarantined={}, lines=len(lines), decisions=items)
    write_metrics(METRICS, figures)


def run_uses(path: Path) -> pl.DataFrame:
    """The uses of one run (``schema.USES``) from the table of the training; raises ``DataError`` if it is missing."""
    if not path.exists():
        raise DataError(f"{path}: no such file; re-run the training of {path.stem}")
    return pl.scan_parquet(path).with_columns(parts_of_id()[1]).select(*USES).collect()


def left_out(uses: Mapping[str, Path]) -> pl.DataFrame:
    """The records that are too long for the model of a run: ``id``, ``run``, and whether another run used the record.

    ``uses`` names the table of each run (``schema.USES``).
    """
    schema = {"id": pl.String(), "run": pl.String()}
    tables = {run: pl.scan_parquet(path) for run, path in uses.items()}
    long = [table.filter(pl.col("tokens").is_not_null()).select("id", run=pl.lit(run)) for run, table in tables.items()]
    rows = pl.concat([pl.LazyFrame(schema=schema), *long]).collect()
    ids = rows["id"].unique().implode()
    used = [
        table.filter(pl.col("tokens").is_null() & pl.col("id").is_in(ids)).select("id") for table in tables.values()
    ]
    found = pl.concat([pl.LazyFrame(schema={"id": pl.String()}), *used]).collect() if len(rows) else rows
    return rows.with_columns(is_used=pl.col("id").is_in(found["id"].implode()))


def index_totals(lines: pl.DataFrame, steps: pl.DataFrame, uses: Mapping[str, Path]) -> pl.DataFrame:
    """Counts by selector (``schema.TOTALS``); ``uses`` names the table of each run."""
    rows = pl.concat(_parts(lines, steps, uses)).unique().sort(*TOTALS)
    return rows.select(*TOTALS)


def _parts(lines: pl.DataFrame, steps: pl.DataFrame, uses: Mapping[str, Path]) -> Iterator[pl.DataFrame]:
    of_line = lines.select("id", *_COLUMNS).rename({"id": "line_id"}).with_columns(all=pl.lit(""))
    fates = steps.lazy().select("line_id", fate().alias("fate"), "side", "mixes").join(of_line.lazy(), on="line_id")
    known = fates.collect()
    for kind, column in _KINDS:
        rows = of_line.drop_nulls(column).group_by(value=column).len("records").with_columns(name=pl.lit("lines"))
        yield _typed(rows, kind, "lines")
        for what in ("fate", "side"):
            counts = known.drop_nulls([column, what]).group_by(value=column, name=what).len("records")
            yield _typed(counts, kind, what)
        mixes = known.select(column, name="mixes").explode("name").drop_nulls()
        yield _typed(mixes.group_by("name", value=column).len("records"), kind, "mix")
    for run, path in uses.items():
        yield from _of_run(run, path, of_line)


def _of_run(run: str, path: Path, of_line: pl.DataFrame) -> Iterator[pl.DataFrame]:
    used = pl.scan_parquet(path).filter(pl.col("tokens").is_null()).select(parts_of_id()[0], "steps")
    known = used.join(of_line.lazy(), on="line_id").select("steps", "all", *_COLUMNS).collect()
    for kind, column in _KINDS:
        counts = (
            known.drop_nulls(column)
            .group_by(value=column)
            .agg(records=pl.len(), steps=pl.col("steps").explode().drop_nulls().n_unique())
        )
        yield _typed(counts.with_columns(name=pl.lit(run)), kind, "run")


def _typed(rows: pl.DataFrame, kind: str, what: str) -> pl.DataFrame:
    steps = pl.col("steps") if "steps" in rows.columns else _NO_STEPS
    complete = rows.with_columns(steps.alias("steps"), kind=pl.lit(kind), what=pl.lit(what))
    return complete.select(pl.col(name).cast(dtype) for name, dtype in TOTALS.items())
