"""The build's decision on every clean record, as a table: why it was dropped, or the side that it is on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from pathfinder.core.mixes import IS_HUMAN
from pathfinder.core.records import DECISIONS
from pathfinder.data.overlap import ProblemHit

_NOTHING = pl.lit(None, pl.String())
_LIMITS = pl.when(IS_HUMAN).then(pl.lit("build.prm800k_records")).otherwise(pl.lit("build.mistral_records"))


def decisions(
    trees: pl.DataFrame,
    sides: Mapping[str, pl.DataFrame],
    dropped: Mapping[str, pl.DataFrame],
    groups: Mapping[str, str],
    hits: Sequence[ProblemHit],
    excluded: pl.DataFrame,
) -> pl.DataFrame:
    """One row per record of ``trees`` (``records.TREES``), in their order; the schema is ``records.DECISIONS``.

    ``sides`` holds the trees of each side, ``dropped`` the trees of each reason, with the records that it concerns.
    ``groups`` names the group of near duplicates of each chosen problem. ``hits`` explains the reason "overlap", and
    ``excluded`` (``exclusions.EXCLUDED``) the reason "excluded".
    """
    found: dict[str, str] = {}
    for hit in hits:
        found.setdefault(hit.problem_id, f"{hit.kind} problem of {hit.benchmark} {hit.benchmark_id}")
    details: dict[str, pl.Expr] = {
        "overlap": pl.col("problem_id").replace_strict(found, default=None, return_dtype=pl.String()),
        "mix": _LIMITS,
        "limit": pl.lit("build.max_records"),
    }
    parts = [
        _records(rows, pl.lit(reason), details.get(reason, _NOTHING), _NOTHING, _NOTHING)
        for reason, rows in dropped.items()
    ]
    group = pl.col("problem_id").replace_strict(groups, default=None, return_dtype=pl.String())
    parts += [_records(rows, _NOTHING, _NOTHING, pl.lit(side), group) for side, rows in sides.items()]
    decided = pl.concat(parts).join(excluded.rename({"detail": "exclusion"}), on="id", how="left")
    decided = decided.with_columns(detail=pl.coalesce("detail", "exclusion"))
    order = trees.select("branches").explode("branches").select(id=pl.col("branches").struct.field("id"))
    return order.join(decided, on="id", how="left", maintain_order="left", validate="1:1").select(*DECISIONS)


def _records(trees: pl.DataFrame, reason: pl.Expr, detail: pl.Expr, side: pl.Expr, group: pl.Expr) -> pl.DataFrame:
    rows = trees.select("tree_id", "branches", reason=reason, detail=detail, side=side, group=group)
    exploded = rows.explode("branches").with_columns(id=pl.col("branches").struct.field("id"))
    return exploded.select(pl.col(name).cast(kind) for name, kind in DECISIONS.items())
