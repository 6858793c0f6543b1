"""Data mixes: all human ratings with a share of the built Monte-Carlo records.

Trees are taken in an order that seed and id alone decide, so that a smaller mix is a prefix of a larger one, and one
build serves all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import polars as pl

from pathfinder.core.io import DataError
from pathfinder.core.params import Mix

HUMAN = pl.col("source") == "prm800k"


def draw(seed: int, key: str) -> float:
    """A number in [0, 1) that depends on seed and key alone."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{key}".encode()).digest()[:8], "big") / 2**64


def take(trees: pl.DataFrame, limit: int, seed: int) -> pl.DataFrame:
    """Whole trees in a seeded order until about ``limit`` records; their own order is kept."""
    size = trees["branches"].list.len()
    if size.sum() <= limit:
        return trees
    order = pl.Series([draw(seed, key) for key in trees["tree_id"]], dtype=pl.Float64).arg_sort()
    kept = order.filter((size.gather(order).cum_sum() <= limit).to_list())
    return trees[kept.sort()]


def records_of(trees: pl.DataFrame) -> int:
    """How many records the trees hold."""
    return int(trees["branches"].list.len().sum())


def share_of(mixes: Iterable[Mix], name: str) -> float:
    """The share of the Monte-Carlo records that a mix takes; raises ``DataError`` where the profile has no such mix."""
    known = {mix.name: mix.share for mix in mixes}
    if name not in known:
        raise DataError(f"params.yaml: no mix {name!r} in `mixes`; there are {', '.join(known) or 'none'}")
    return known[name]


def select(trees: pl.DataFrame, share: float, seed: int) -> pl.DataFrame:
    """The trees of a mix, in their own order: every human one and a share of the others, counted in records."""
    if share >= 1:
        return trees
    others = trees.filter(~HUMAN)
    chosen = take(others, round(share * records_of(others)), seed)
    return trees.filter(HUMAN | pl.col("tree_id").is_in(chosen["tree_id"].implode()))
