"""Writes the index: the fate of every upstream line and rated step, which runs used it, and every decision.

Reads   artifacts/raw/{manifest.json,prmbench}, artifacts/{steps,labels,clean,train,used,predictions},
        artifacts/decisions.parquet; params: runs, baselines, critics, mixes, build.seed
Writes  artifacts/index/{lines,steps,totals,items}.parquet, artifacts/index/uses/<run>.parquet, metrics/index.json
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet

from ground.io import DataError, atomic_folder, text_digest
from ground.manifest import read_manifest
from ground.progress import Progress
from pathfinder.core import mixes
from pathfinder.core.hub import MANIFEST
from pathfinder.core.labels import DISAGREES
from pathfinder.core.metrics import Flow, Whole, write_metrics
from pathfinder.core.params import Mix, Params
from pathfinder.reporting.index import schema
from pathfinder.reporting.index.items import index_items
from pathfinder.reporting.index.schema import LINES, SELECTORS, TOTALS, USES, fate

ARTIFACTS = Path("artifacts")
METRICS = Path("metrics/index.json")
_COLUMNS = [column for _, column in SELECTORS]
_KINDS = (("all", "all"), *SELECTORS)
_ID = r"^(\w+-[0-9a-f]{8}-(\d+))-(\d+)-(\d+)$"


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


def parts_of_id() -> list[pl.Expr]:
    """Line id, line, position and completion of the column ``id``."""
    names = ("line_id", "line", "position", "completion")
    parts = [pl.col("id").str.extract(_ID, number).alias(name) for number, name in enumerate(names, start=1)]
    return [part if name == "line_id" else part.cast(pl.Int64) for name, part in zip(names, parts, strict=True)]


def index_lines(lines: Path, manifest: Mapping[str, Any]) -> pl.DataFrame:
    """Every upstream line (``schema.LINES``), from the table of prepare and the manifest of download.

    Raises ``DataError`` if the manifest lacks a file.
    """
    files = [
        (f"{folder}/{name}", folder, about["sha256"], source["licence"])
        for folder, source in manifest.items()
        for name, about in source["files"].items()
    ]
    columns = ("file", "folder", "sha256", "licence")
    known = pl.LazyFrame(files, schema=dict.fromkeys(columns, pl.String()), orient="row")
    found = pl.scan_parquet(lines).rename({"line_id": "id"}).join(known, on="file", how="left", maintain_order="left")
    no_records = pl.when(pl.col("records") == 0).then(pl.lit("no_records"))
    table = found.with_columns(reason=pl.coalesce("reason", no_records)).select(*LINES).collect()
    if table["sha256"].null_count():
        file = table.filter(pl.col("sha256").is_null())["file"][0]
        raise DataError(f"artifacts/raw/manifest.json: no entry for {file}; re-run download and prepare")
    return table


def answer_digests(answers: Path) -> pl.LazyFrame:
    """The digests of the judge's answers by record, in the order of the attempts; the texts are read in batches."""
    parts = [pl.DataFrame(schema={"id": pl.String(), "attempt": pl.Int64(), "digest": pl.String()})]
    with pyarrow.parquet.ParquetFile(answers) as file:
        for batch in file.iter_batches(batch_size=4096, columns=["id", "attempt", "answer"]):
            texts = batch.column("answer").to_pylist()
            digests = [None if text is None else text_digest(text) for text in texts]
            rows = pl.DataFrame(pl.from_arrow(batch.drop_columns(["answer"])))
            parts.append(rows.with_columns(digest=pl.Series(digests, dtype=pl.String())))
    rows = pl.concat(parts).sort("id", "attempt")
    return rows.lazy().group_by("id").agg(answers=pl.col("digest"))


def index_steps(
    artifacts: Path, lines: pl.DataFrame, mix_params: Iterable[Mix], seed: int, left_out: pl.DataFrame
) -> pl.DataFrame:
    """Every rated step (``schema.STEPS``), those that prepare left out included.

    ``left_out`` has the columns ``id``, ``run`` and ``is_used`` for the records that are too long for the model of a
    run. A record that no other run used is dropped by the training.
    """
    rated = pl.scan_parquet(artifacts / "steps/steps.parquet").select("id", "rating")
    quarantine = pl.scan_parquet(artifacts / "steps/quarantine.parquet").drop_nulls("id")
    lost = pl.scan_parquet(artifacts / "steps/dropped.parquet")
    no_detail = pl.lit(None, pl.String())
    unread = pl.concat([quarantine.select("id", "reason", "detail"), lost.select("id", "reason", detail=no_detail)])
    rows = pl.concat([rated, unread.select("id", rating=pl.lit(None, pl.Int8()))])
    tables = {
        "unread": unread.rename({"reason": "unread", "detail": "unread_detail"}),
        "labels": pl.scan_parquet(artifacts / "labels/labels.parquet").drop("origin", "attempts"),
        "answers": answer_digests(artifacts / "labels/answers.parquet"),
        "drops": pl.scan_parquet(artifacts / "clean/drops.parquet").rename({"reason": "filtered"}),
        "decisions": pl.scan_parquet(artifacts / "decisions.parquet").rename({"reason": "decided"}).drop("tree_id"),
        "left out": left_out.lazy().sort("id", "run").group_by("id").agg("is_used", left_out_by=pl.col("run")),
    }
    for table in tables.values():
        rows = rows.join(table, on="id", how="left")
    rows = rows.with_columns(*parts_of_id())
    rows = rows.join(_mixes_of(artifacts / "train/train.parquet", mix_params, seed), on="line_id", how="left")
    rows = rows.join(lines.lazy().select(line_id="id").with_row_index("place"), on="line_id", how="left")
    too_long = ~pl.col("is_used").list.any()
    no_list = pl.lit([], pl.List(pl.String()))
    return (
        rows.with_columns(
            stage=pl.when(pl.col("unread").is_not_null())
            .then(pl.lit("prepare"))
            .when(pl.col("filtered").is_not_null())
            .then(pl.when(pl.col("filtered") == DISAGREES).then(pl.lit("filter")).otherwise(pl.lit("label")))
            .when(pl.col("decided").is_not_null())
            .then(pl.lit("build"))
            .when(too_long)
            .then(pl.lit("train")),
            reason=pl.coalesce("unread", "filtered", "decided", pl.when(too_long).then(pl.lit("too_long"))),
            detail=pl.coalesce("unread_detail", "detail"),
            mixes=pl.when(pl.col("side") == "train").then(pl.col("mixes")).fill_null(no_list),
            answers=pl.col("answers").fill_null(no_list),
            left_out_by=pl.col("left_out_by").fill_null(no_list),
        )
        .sort("place", "position", "completion", "id")
        .collect()
    )


def _mixes_of(train: Path, mix_params: Iterable[Mix], seed: int) -> pl.LazyFrame:
    """The names of the mixes that contain each tree."""
    ids = pl.col("branches").list.eval(pl.element().struct.field("id"))
    trees = pl.scan_parquet(train).select("tree_id", "source", branches=ids).collect()
    parts = [pl.DataFrame(schema={"line_id": pl.String(), "mixes": pl.String()})]
    for mix in mix_params:
        chosen = mixes.select(trees, mix.share, seed)
        parts.append(chosen.select(line_id="tree_id", mixes=pl.lit(mix.name)))
    return pl.concat(parts).lazy().group_by("line_id", maintain_order=True).agg("mixes")


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
    parts = [pl.DataFrame(schema=TOTALS), *_parts(lines, steps, uses)]
    return pl.concat(parts, how="diagonal_relaxed").unique().sort(*TOTALS)


def _parts(lines: pl.DataFrame, steps: pl.DataFrame, uses: Mapping[str, Path]) -> Iterator[pl.DataFrame]:
    of_line = lines.select(pl.lit("").alias("all"), *_COLUMNS, line_id="id")
    fates = steps.lazy().select("line_id", fate().alias("fate"), "side", "mixes").join(of_line.lazy(), on="line_id")
    known = fates.collect()
    of_steps = {"fate": pl.col("fate"), "side": pl.col("side"), "mix": pl.col("mixes")}
    named = [("lines", of_line, pl.lit("lines")), *((what, known, name) for what, name in of_steps.items())]
    for kind, column in _KINDS:
        for what, rows, name in named:
            pairs = rows.select(value=column, name=name)
            pairs = pairs.explode("name") if what == "mix" else pairs
            counts = pairs.drop_nulls().group_by("value", "name").len("records")
            yield counts.with_columns(kind=pl.lit(kind), what=pl.lit(what))
    steps_of_group = pl.col("steps").explode().drop_nulls().n_unique()
    for run, path in uses.items():  # one at a time in memory
        used = pl.scan_parquet(path).filter(pl.col("tokens").is_null()).select(parts_of_id()[0], "steps")
        rows = used.join(of_line.lazy(), on="line_id").select("steps", "all", *_COLUMNS).collect()
        for kind, column in _KINDS:
            counts = rows.drop_nulls(column).group_by(value=column).agg(records=pl.len(), steps=steps_of_group)
            yield counts.with_columns(kind=pl.lit(kind), what=pl.lit("run"), name=pl.lit(run))
