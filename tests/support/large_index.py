"""A synthetic index of any size: the tables, and a report, of a history with many runs, written in parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet

from ground.io import write_json
from pathfinder.reporting.index import schema

STEPS_PER_LINE = 10
_CHUNK = 1_000_000
_FIGURES = 40
"""Figures of the report per run."""


def write_large_index(root: Path, records: int, runs: int, used: int) -> None:
    """An index of ``records`` steps; each of ``runs`` runs used the first ``used`` of them, once per epoch of four."""
    folder = root / schema.INDEX
    (folder / "uses").mkdir(parents=True)
    with (
        _writer(folder / "lines.parquet", schema.LINES) as lines,
        _writer(folder / "steps.parquet", schema.STEPS) as out,
    ):
        for start in range(0, records, _CHUNK):
            numbers = pl.DataFrame({"n": np.arange(start, min(start + _CHUNK, records))})
            _write(out, _steps(numbers, used), schema.STEPS)
            first = numbers.filter(pl.col("n") % STEPS_PER_LINE == 0)
            _write(lines, _lines(first), schema.LINES)
    names = [f"full-s{number}" for number in range(2, runs + 2)]
    ids = pl.DataFrame({"n": np.arange(used)}).select(_id(), line=_line(), tokens=pl.lit(None, pl.Int64()))
    for number, name in enumerate(names):
        draws = np.random.default_rng(number)
        rows = used // STEPS_PER_LINE
        per_line = [np.repeat(draws.integers(1, 5000, rows), STEPS_PER_LINE) + 5000 * epoch for epoch in range(4)]
        steps = pl.DataFrame({str(epoch): values[:used] for epoch, values in enumerate(per_line)})
        listed = steps.select(steps=pl.concat_list(pl.all().cast(pl.Int32)))["steps"]
        schema.write_table(folder / schema.run_file(name), ids.with_columns(listed), schema.USES)
    _write_totals(folder / "totals.parquet", names, records, used)
    origin = [{"how": "mean", "of": [f"metrics/{part}/{name}.json#/f1"]} for name in names for part in range(_FIGURES)]
    write_json(root / "reports/tables.json", {"tables": {"Results": [{"origins": {"rows": origin}}]}})


def _id() -> pl.Expr:
    place = pl.col("n") % STEPS_PER_LINE
    return pl.format("prm800k-01234567-{}-{}-0", _line(), place).alias("id")


def _line() -> pl.Expr:
    return pl.col("n") // STEPS_PER_LINE + 1


def _steps(numbers: pl.DataFrame, used: int) -> pl.DataFrame:
    is_used = pl.col("n") < used
    none = pl.lit([], pl.List(pl.String()))
    return numbers.with_columns(
        _id(),
        line_id=pl.format("prm800k-01234567-{}", _line()),
        line=_line(),
        position=pl.col("n") % STEPS_PER_LINE,
        completion=0,
        rating=1 - pl.col("n") % 3,
        answers=pl.when(pl.col("n") % 3 == 2)
        .then(pl.concat_list(pl.format("{}", pl.col("n").hash(1))))
        .otherwise(none),
        math=1,
        consistency=1,
        optimality=1,
        outcome=pl.lit("parsed"),
        stage=pl.when(is_used).then(None).otherwise(pl.lit("build")),
        reason=pl.when(is_used).then(None).otherwise(pl.lit("limit")),
        detail=pl.when(is_used).then(None).otherwise(pl.lit("build.max_records")),
        side=pl.when(is_used).then(pl.lit("train")),
        group=pl.when(is_used).then(pl.format("{}", _line().hash(2))),
        mixes=pl.when(is_used).then(pl.lit(["400k"])).otherwise(none),
        left_out_by=none,
    )


def _lines(numbers: pl.DataFrame) -> pl.DataFrame:
    content = [f"{value:032x}" for value in numbers["n"].hash(3).to_list()]
    return numbers.with_columns(
        id=pl.format("prm800k-01234567-{}", _line()),
        content=pl.Series(content),
        source=pl.lit("prm800k"),
        folder=pl.lit("prm800k"),
        file=pl.lit("prm800k/all.jsonl"),
        sha256=pl.lit("01234567" * 8),
        line=_line(),
        licence=pl.lit("MIT"),
        rater=pl.format("rater-{}", _line() % 50),
        records=STEPS_PER_LINE,
        reason=None,
    )


def _write_totals(path: Path, runs: list[str], records: int, used: int) -> None:
    rows = []
    for kind, values, share in (
        ("all", [""], 1),
        ("licence", ["MIT"], 1),
        ("source", ["prm800k"], 1),
        ("rater", [f"rater-{number}" for number in range(50)], 50),
    ):
        for value in values:
            rows += [
                (kind, value, "lines", "lines", records // STEPS_PER_LINE // share, None),
                (kind, value, "fate", "kept", used // share, None),
                (kind, value, "fate", "build: limit", (records - used) // share, None),
                (kind, value, "side", "train", used // share, None),
                (kind, value, "mix", "400k", used // share, None),
                *((kind, value, "run", run, used // share, 20_000 if share == 1 else 19_000) for run in runs),
            ]
    schema.write_table(path, pl.DataFrame(rows, schema=schema.TOTALS, orient="row"), schema.TOTALS)


def _writer(path: Path, columns: dict[str, pl.DataType]) -> pyarrow.parquet.ParquetWriter:
    empty = pl.DataFrame(schema=columns).to_arrow(compat_level=pl.CompatLevel.oldest())
    return pyarrow.parquet.ParquetWriter(path, empty.schema, compression="zstd")


def _write(writer: pyarrow.parquet.ParquetWriter, rows: pl.DataFrame, columns: dict[str, pl.DataType]) -> None:
    typed = rows.select(pl.col(name).cast(kind) for name, kind in columns.items())
    writer.write_table(typed.to_arrow(compat_level=pl.CompatLevel.oldest()), row_group_size=schema.ROW_GROUP)
