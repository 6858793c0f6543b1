"""The gates of the training set: train and test trees, each of their records, and the split between them.

Every record is joined with the clean record and the step that it was made from. Texts are replaced by their lengths and
by checks of them. The split is that of ``stages/build.py``; the paper describes none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from pathfinder.core.labels import HUMAN, MONTE_CARLO, PREDICTED, STEP_LABELS
from pathfinder.core.mixes import IS_HUMAN
from pathfinder.core.params import Mix, Validate
from pathfinder.core.records import TREES
from pathfinder.gates import suites
from pathfinder.gates.gates import Suite, matches, one_of, present, row_count, some_rows, unique, within
from pathfinder.gates.suites import Tables, file_of, flag, flagged

SIDES = ("train", "test")
TRAIN_SCHEMAS: dict[str, dict[str, Any]] = dict.fromkeys(SIDES, TREES)


def train_contents(tables: Tables, kept: int, bounds: Validate, mixes: Sequence[Mix] = ()) -> Iterator[Suite]:
    """Every rule about the train and test trees in ``tables`` (``records.TREES``).

    ``tables`` also has the trajectories, steps and clean records that they were made from. ``kept`` is the number of
    records in the metrics of the build. A mix whose name is a number of records, such as 400k, must hold about that
    many.
    """
    records = {side: tables[side].select("tree_id", "branches").explode("branches") for side in SIDES}
    steps = tables["steps"].select("id", "trajectory_id", "step_index", "step")
    made_from = tables["clean"].join(steps, on="id").unique("id")
    for side, other in (SIDES, SIDES[::-1]):
        yield _trees(tables, side, other, bounds)
        yield _records(records, side, other, made_from, bounds)
    every = pl.concat([rows.select(pl.col("branches").struct.field("correctness")) for rows in records.values()])
    share = every.select(positive=(pl.col("correctness") == 1).mean())
    count = row_count(kept, "train and test hold what build kept")
    yield Suite("train_counts", file_of("train"), "", every, (count,))
    yield Suite("train_shares", file_of("train"), "", share, (suites.positive_gate(bounds), present("positive")))
    named = {mix: 1000 * int(mix.name[:-1]) for mix in mixes if mix.name[:-1].isdigit()}
    if bounds.mix_tolerance and named:
        yield _mixes(tables, named, bounds.mix_tolerance)


def _mixes(tables: Tables, named: Mapping[Mix, int], tolerance: float) -> Suite:
    """The records of each mix, with the held-out records, compared with the number in its name."""
    records = pl.concat([tables[side].select("source", pl.col("branches").list.len()) for side in SIDES])
    human = int(records.filter(IS_HUMAN)["branches"].sum())
    other = int(records["branches"].sum()) - human
    held = {mix: human + round(mix.share * other) for mix in named}
    rows = [(f"{mix.name}: {held[mix]:,} records", abs(held[mix] / named[mix] - 1)) for mix in named]
    says = (
        f"a mix holds its name's number of records within {tolerance:.0%} (validate.mix_tolerance); change the build, "
        "judge more steps (label.mistral_per_rating), or rename the mix"
    )
    table = pl.DataFrame(rows, schema={"mix": pl.String(), "difference": pl.Float64()}, orient="row")
    return Suite("train_mixes", file_of("train"), "mix", table, (within("difference", 0.0, tolerance, says),))


# A join names the columns of the right-hand table …_right, unless the left-hand table lacks them.


def _trees(tables: Tables, side: str, other: str, bounds: Validate) -> Suite:
    origin = tables["trajectories"].unique("trajectory_id").rename({"trajectory_id": "tree_id"}).drop("problem_id")
    copied = [pl.col(name) == pl.col(f"{name}_right") for name in ("source", "problem", "steps")]
    furthest = pl.col("branches").list.eval(pl.element().struct.field("step_index")).list.max()
    table = suites.left_join(tables[side], origin, on="tree_id").select(
        "tree_id",
        "problem_id",
        "source",
        **suites.text_measures(tables[side]),
        on_other_side=flag(pl.col("problem_id").is_in(tables[other]["problem_id"].unique().implode())),
        trajectory_found=flag(pl.col("source_right").is_not_null()),
        trajectory_right=flag(pl.all_horizontal(copied)),
        records=pl.col("branches").list.len().cast(pl.Int64),
        prefix_right=flag(furthest <= pl.col("steps").list.len()),
    )
    rules = (
        some_rows(),
        unique("tree_id"),
        *(present(name) for name in ("tree_id", "problem_id", "source", "problem_chars")),
        one_of("source", (HUMAN, *MONTE_CARLO)),
        matches("problem_id", "^[0-9a-f]{16}$", "problem_id is 16 hexadecimal digits"),
        *flagged("problem_id_right"),
        one_of("on_other_side", [0]),
        *flagged("trajectory_found", "trajectory_right"),
        *suites.text_gates(bounds),
        within("records", 1, None),
        *flagged("prefix_right"),
    )
    return Suite(f"{side}_trees", file_of(side), "tree_id", table, rules)


def _records(tables: Tables, side: str, other: str, made_from: pl.DataFrame, bounds: Validate) -> Suite:
    same = [pl.col(name).eq_missing(pl.col(f"{name}_right")) for name in ("step_index", "step", *STEP_LABELS)]
    elsewhere = tables[other]["branches"].struct.field("id")
    table = suites.left_join(tables[side].unnest("branches"), made_from).select(
        "id",
        "step_index",
        *STEP_LABELS,
        step_chars=suites.length("step"),
        record_found=flag(pl.col("trajectory_id").is_not_null()),
        tree_right=flag(pl.col("trajectory_id") == pl.col("tree_id")),
        record_right=flag(pl.all_horizontal(same)),
        on_other_side=flag(pl.col("id").is_in(elsewhere.implode())),
    )
    rules = (
        some_rows(),
        unique("id"),
        *(present(name) for name in ("id", "step_index", "step_chars", *STEP_LABELS)),
        *(one_of(name, [0, 1]) for name in STEP_LABELS),
        *(one_of(kind.name, [1], correctness=1) for kind in PREDICTED),
        within("step_index", 0, None),
        within("step_chars", 0, bounds.max_text_chars),
        *flagged("record_found", "tree_right", "record_right"),
        one_of("on_other_side", [0]),
    )
    return Suite(f"{side}_records", file_of(side), "id", table, rules)
