"""Which records an exclusion list takes from the trees, and in what time."""

from __future__ import annotations

import time

import polars as pl
import pytest

from pathfinder.data.trainset import exclude


def trees_of(trees: int, branches: int) -> pl.DataFrame:
    """Trees whose records are named TREE-BRANCH; the first has no record."""
    names = pl.select(tree_id=pl.int_range(trees)).select(
        pl.concat_str(pl.lit("t"), "tree_id").alias("tree_id"),
        pl.lit(["a"]).alias("steps"),
        pl.concat_list(pl.struct(id=pl.concat_str("tree_id", pl.lit(f"-{n}"))) for n in range(branches)).alias(
            "branches"
        ),
    )
    first = pl.col("tree_id") == "t0"
    return names.with_columns(pl.when(first).then(pl.col("branches").list.head(0)).otherwise("branches"))


def test_both_sides_keep_the_order_and_no_empty_tree() -> None:
    ids = pl.Series("id", ["4-2", "1-0", "2-0", "2-1", "2-2", "unknown"])
    found = [
        [(row["tree_id"], [branch["id"] for branch in row["branches"]]) for row in side.iter_rows(named=True)]
        for side in exclude(trees_of(5, 3), ids)
    ]
    assert found == [
        [("t1", ["1-1", "1-2"]), ("t3", ["3-0", "3-1", "3-2"]), ("t4", ["4-0", "4-1"])],
        [("t1", ["1-0"]), ("t2", ["2-0", "2-1", "2-2"]), ("t4", ["4-2"])],
    ]
    assert all(side.schema == trees_of(5, 3).schema for side in exclude(trees_of(5, 3), ids))


@pytest.mark.campaign
@pytest.mark.campaign
def test_a_whole_source_is_excluded_in_linear_time() -> None:
    """Fails if each tree reads all ids, which takes half a minute for these."""
    trees, ids = trees_of(20_000, 5), pl.Series("id", [f"{n}-{place}" for n in range(10_000) for place in range(5)])
    start = time.perf_counter()
    kept, left_out = exclude(trees, ids)
    assert time.perf_counter() - start < 10
    assert (len(kept), len(left_out)) == (10_000, 9_999)
