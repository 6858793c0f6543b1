"""The tables of the index, in artifacts/index. Each is sorted as the upstream files are, unless noted.

A row group holds thousands of rows with the range of every column, so a reader of one upstream line skips nearly all
of the file. Texts are not stored: the index may be kept after the texts themselves were deleted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from ground.io import DataError, atomic_file
from pathfinder.core.labels import CRITERIA

INDEX = Path("artifacts/index")
SELECTORS = (("licence", "licence"), ("rater", "rater"), ("source", "source"), ("source", "folder"))
"""Each kind of selector with a column of ``LINES`` that it names; a source has two names."""
ROW_GROUP = 50_000
_USES_ROW_GROUP = 5_000
"""Smaller, because a reader of one line reads a row group of every run."""
_TEXT, _COUNT, _LABEL = pl.String(), pl.Int64(), pl.Int8()

LINES: dict[str, Any] = {
    "id": _TEXT,  # <dataset>-<first 8 of the file's sha256>-<line>
    "content": _TEXT,  # see records.content_id
    "source": _TEXT,
    "folder": _TEXT,  # below artifacts/raw: the name of the source in the catalogue
    "file": _TEXT,  # below artifacts/raw
    "sha256": _TEXT,  # of the file
    "line": _COUNT,  # from 1
    "licence": _TEXT,
    "rater": _TEXT,  # null if the source names none
    "records": _COUNT,  # rated steps
    "reason": _TEXT,  # of a line without rated steps: why it is quarantined, or "no_records"
}
STEPS: dict[str, Any] = {
    "id": _TEXT,  # <id of the line>-<position>-<completion>
    "line_id": _TEXT,
    "line": _COUNT,
    "position": _COUNT,
    "completion": _COUNT,
    "rating": _LABEL,
    "answers": pl.List(_TEXT),  # first 16 digits of the sha256 of each of the judge's answers, in their order
    **dict.fromkeys(CRITERIA, _LABEL),  # the judge's scores, or the scores that the rating implies
    "outcome": _TEXT,  # of the labelling
    "stage": _TEXT,  # prepare | label | filter | build | train: the stage that dropped it; null if it was used
    "reason": _TEXT,  # why
    "detail": _TEXT,
    "side": _TEXT,  # train | test; null if it is in no tree
    "group": _TEXT,  # of near-duplicate problems, which decides the side
    "mixes": pl.List(_TEXT),  # that contain it; every mix has the same held-out records
    "left_out_by": pl.List(_TEXT),  # runs for whose model it is too long
}
USES: dict[str, Any] = {
    "id": _TEXT,
    "line": _COUNT,
    "steps": pl.List(pl.Int32()),  # optimiser steps from 1
    "tokens": _COUNT,  # if it was left out as too long
}
"""One table per run, ``uses/<run>.parquet``."""
TOTALS: dict[str, Any] = {
    "kind": _TEXT,  # all | licence | rater | source
    "value": _TEXT,
    "what": _TEXT,  # lines | fate | side | mix | run
    "name": _TEXT,  # of the fate (stage and reason), side, mix or run
    "records": _COUNT,  # lines for "lines"
    "steps": _COUNT,  # different optimiser steps for "run", else null
}
"""Counts of everything that one selector names, sorted by all columns."""
ITEMS: dict[str, Any] = {
    "benchmark": _TEXT,  # processbench | prmbench | search | best_of_n_<rule> | sample
    "system": _TEXT,  # a run, a published PRM, a judge, "random" or "policy"
    "part": _TEXT,  # subset, class or set
    "item": _TEXT,
    "label": _TEXT,  # what is correct, as JSON
    "prediction": _TEXT,  # as JSON
    "correct": pl.Boolean(),  # whether they are equal, by the rule of the metrics
    "reward": pl.Float64(),  # the lowest reward of a step; null without rewards
    "file": _TEXT,
    "row": _COUNT,  # from 1
}
"""The decision of every system on every benchmark item, in the order of the prediction files."""


def write_table(path: Path, rows: pl.DataFrame, schema: dict[str, Any]) -> None:
    """Write one table of the index, atomically; raises ``DataError`` if an id occurs twice."""
    if "id" in schema and rows["id"].n_unique() != len(rows):
        raise DataError(f"{path}: ids repeat in what it is made from; re-run prepare and the stages after it")
    with atomic_file(path) as temporary:
        typed = rows.select(pl.col(name).cast(kind) for name, kind in schema.items())
        size = _USES_ROW_GROUP if schema is USES else ROW_GROUP
        typed.write_parquet(temporary, compression="zstd", statistics=True, row_group_size=size)


def run_file(run: str) -> Path:
    """The table of a run's uses, below the index."""
    return Path("uses") / f"{run}.parquet"


def fate() -> pl.Expr:
    """The fate of a step as one text, for example "build: limit"; "kept" if it is in a tree."""
    return pl.when(pl.col("stage").is_null()).then(pl.lit("kept")).otherwise(pl.format("{}: {}", "stage", "reason"))
