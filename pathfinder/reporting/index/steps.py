"""The tables of lines and steps: labels, answers, the reason of every drop, side and mixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet

from ground.io import DataError, text_digest
from pathfinder.core import mixes
from pathfinder.core.labels import DISAGREES
from pathfinder.core.params import Mix
from pathfinder.reporting.index.schema import LINES

_ID = r"^(\w+-[0-9a-f]{8}-(\d+))-(\d+)-(\d+)$"
_NONE = pl.lit(None, pl.String())
NO_RECORDS = "no_records"
TOO_LONG = "too_long"


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
    no_records = pl.when(pl.col("records") == 0).then(pl.lit(NO_RECORDS))
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
    unread = pl.concat([quarantine.select("id", "reason", "detail"), lost.select("id", "reason", detail=_NONE)])
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
            reason=pl.coalesce("unread", "filtered", "decided", pl.when(too_long).then(pl.lit(TOO_LONG))),
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
