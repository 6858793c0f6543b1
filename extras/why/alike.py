"""The training steps that resemble a step, for a decision whose training is not repeated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from ground.io import read_parquet
from ground.text import normalise
from pathfinder.core.labels import STEP_LABELS
from pathfinder.core.mixes import select, share_of
from pathfinder.core.params import load_params
from pathfinder.core.runs import Run


def records_of(run: Run, train: Path, schema: dict[str, Any] | None = None) -> pl.DataFrame:
    """The trees that a run learns from; ``schema`` is the required schema."""
    params = load_params()
    trees = pl.read_parquet(train) if schema is None else read_parquet(train, schema)
    return select(trees, share_of(params.mixes, run.mix), params.build.seed)


def alike(step: str, trees: pl.DataFrame, labels: Mapping[str, bool]) -> list[tuple[str, float, bool]]:
    """The id of each record, the similarity of its step, and whether it has the same labels; the most similar first.

    The similarity is the share of common sequences of three words and signs, from 0 to 1. Labels that a record lacks
    count as equal.
    """
    from pathfinder.data.near_duplicates import NearDuplicates

    own, found = normalise(step), list[tuple[str, str, bool]]()
    for branch in trees["branches"].explode():
        values = {name: branch.get(name) for name in labels if name in STEP_LABELS}
        is_kind = all(value is None or (value >= 0.5) == labels[name] for name, value in values.items())
        found.append((branch["id"], normalise(branch["step"]), is_kind))
    near = {place: value for place, _, value in NearDuplicates([own], 0.0).pairs([text for _, text, _ in found])}
    rows = [(name, near.get(place, 0.0), is_kind) for place, (name, _, is_kind) in enumerate(found)]
    return sorted(rows, key=lambda row: (-row[1], row[0]))
