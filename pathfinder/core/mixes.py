"""Data mixes: all human ratings and a share of the built Monte-Carlo records.

Seed and id decide the order of the trees. A smaller mix is therefore a prefix of a larger one, and one build serves all
mixes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import polars as pl

from ground.io import DataError
from pathfinder.core.labels import HUMAN
from pathfinder.core.params import Mix

IS_HUMAN = pl.col("source") == HUMAN


def draw(seed: int, key: str) -> float:
    """A number in [0, 1) that depends only on seed and key."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{key}".encode()).digest()[:8], "big") / 2**64


def take(trees: pl.DataFrame, limit: int, seed: int) -> pl.DataFrame:
    """Whole trees, chosen in a seeded order up to ``limit`` records and returned in their own order."""
    size = trees["branches"].list.len()
    if size.sum() <= limit:
        return trees
    order = pl.Series([draw(seed, key) for key in trees["tree_id"]], dtype=pl.Float64).arg_sort()
    kept = order.filter((size.gather(order).cum_sum() <= limit).to_list())
    return trees[kept.sort()]


def records_of(trees: pl.DataFrame) -> int:
    """The number of records in the trees."""
    return int(trees["branches"].list.len().sum())


def share_of(mixes: Iterable[Mix], name: str) -> float:
    """The share of the Monte-Carlo records in a mix; raises ``DataError`` if the profile has no such mix."""
    known = {mix.name: mix.share for mix in mixes}
    if name not in known:
        raise DataError(
            f"params.yaml: no mix {name!r} in `mixes`; expected one of {', '.join(known) or '(none defined)'}"
        )
    return known[name]


def select(trees: pl.DataFrame, share: float, seed: int) -> pl.DataFrame:
    """The trees of a mix, in their own order: all human trees and a share of the rest, counted in records."""
    if share >= 1:
        return trees
    others = trees.filter(~IS_HUMAN)
    chosen = take(others, round(share * records_of(others)), seed)
    return trees.filter(IS_HUMAN | pl.col("tree_id").is_in(chosen["tree_id"].implode()))
