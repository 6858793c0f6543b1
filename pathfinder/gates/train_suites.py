"""The gates of the training set: train and test trees, each of their records, and the split between them.

Every record is joined with the clean record and the step that it was made from. Texts are replaced by their lengths and
by checks of them. The split is section 3.3 of the paper.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from pathfinder.core.labels import HUMAN, MONTE_CARLO
from pathfinder.core.params import Validate
from pathfinder.core.records import STEP_LABELS, TREES
from pathfinder.gates.gates import Gate, Suite, Where, matches, one_of, present, row_count, some_rows, unique, within
from pathfinder.gates.suites import Tables, file_of, flag, flagged, left_join, positive_gate, text_gates, text_measures

SIDES = ("train", "test")
TRAIN_SCHEMAS: dict[str, dict[str, Any]] = dict.fromkeys(SIDES, TREES)
_COPIED = ("step_index", "step", *STEP_LABELS)


def train_contents(tables: Tables, kept: int, bounds: Validate) -> list[Suite]:
    """Every rule about the train and test trees in ``tables`` (``records.TREES``).

    ``tables`` also has the trajectories, steps and clean records that they were made from. ``kept`` is the number of
    records in the metrics of the build.
    """
    suites = []
    records = {side: tables[side].select("tree_id", "branches").explode("branches") for side in SIDES}
    made_from = tables["clean"].join(tables["steps"].select("id", "trajectory_id", "step_index", "step"), on="id")
    for side, other in (SIDES, SIDES[::-1]):
        trees = _trees(tables[side], tables[other], tables["trajectories"])
        suites.append(Suite(f"{side}_trees", file_of(side), "tree_id", trees, _tree_gates(bounds.max_text_chars)))
        rows = _records(records[side], records[other], made_from)
        suites.append(Suite(f"{side}_records", file_of(side), "id", rows, _record_gates(bounds.max_text_chars)))
    every = pl.concat([rows.select(pl.col("branches").struct.field("correctness")) for rows in records.values()])
    share = every.select(positive=(pl.col("correctness") == 1).mean())
    return [
        *suites,
        Suite("train_counts", file_of("train"), "", every, (row_count(kept, "train and test hold what build kept"),)),
        Suite("train_shares", file_of("train"), "", share, (positive_gate(bounds), present("positive"))),
    ]


def _trees(side: pl.DataFrame, other: pl.DataFrame, trajectories: pl.DataFrame) -> pl.DataFrame:
    origin = trajectories.unique("trajectory_id").select(
        pl.col("trajectory_id").alias("tree_id"),
        *(pl.col(name).alias(f"from_{name}") for name in ("source", "problem", "steps")),
    )
    return (
        left_join(side, origin, on="tree_id")
        .select(
            "tree_id",
            "problem_id",
            "source",
            **text_measures(side),
            on_other_side=flag(pl.col("problem_id").is_in(other["problem_id"].unique().implode())),
            trajectory_found=flag(pl.col("from_source").is_not_null()),
            trajectory_right=flag(
                (pl.col("source") == pl.col("from_source"))
                & (pl.col("problem") == pl.col("from_problem"))
                & (pl.col("steps") == pl.col("from_steps"))
            ),
            records=pl.col("branches").list.len().cast(pl.Int64),
            furthest=pl.col("branches").list.eval(pl.element().struct.field("step_index")).list.max(),
            trunk=pl.col("steps").list.len().cast(pl.Int64),
        )
        .with_columns(prefix_right=flag(pl.col("furthest") <= pl.col("trunk")))
    )


def _records(side: pl.DataFrame, other: pl.DataFrame, made_from: pl.DataFrame) -> pl.DataFrame:
    origin = made_from.unique("id").select(
        "id",
        pl.col("trajectory_id").alias("from_tree"),
        *(pl.col(name).alias(f"from_{name}") for name in _COPIED),
    )
    same = [pl.col(name).eq_missing(pl.col(f"from_{name}")) for name in _COPIED]
    elsewhere = other["branches"].struct.field("id")
    return left_join(side.unnest("branches"), origin).select(
        "id",
        "step_index",
        "math",
        "consistency",
        "correctness",
        step_chars=pl.col("step").str.len_chars().cast(pl.Int64),
        record_found=flag(pl.col("from_tree").is_not_null()),
        tree_right=flag(pl.col("from_tree") == pl.col("tree_id")),
        record_right=flag(pl.all_horizontal(*same)),
        on_other_side=flag(pl.col("id").is_in(elsewhere.implode())),
    )


def _tree_gates(limit: int) -> tuple[Gate, ...]:
    return (
        some_rows(),
        unique("tree_id"),
        *(present(name) for name in ("tree_id", "problem_id", "source", "problem_chars")),
        one_of("source", (HUMAN, *MONTE_CARLO)),
        matches("problem_id", "^[0-9a-f]{16}$", "problem_id is 16 hexadecimal digits"),
        one_of("problem_id_right", [1]),
        one_of("on_other_side", [0]),
        *flagged("trajectory_found", "trajectory_right"),
        *text_gates(limit),
        within("records", 1, None),
        one_of("prefix_right", [1]),
    )


def _record_gates(limit: int) -> tuple[Gate, ...]:
    right = Where("correctness", 1)
    return (
        some_rows(),
        unique("id"),
        *(present(name) for name in ("id", "step_index", "step_chars", *STEP_LABELS)),
        *(one_of(name, [0, 1]) for name in STEP_LABELS),
        *(one_of(name, [1], right) for name in STEP_LABELS[:-1]),
        within("step_index", 0, None),
        within("step_chars", 0, limit),
        *flagged("record_found", "tree_right", "record_right"),
        one_of("on_other_side", [0]),
    )
