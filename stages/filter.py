"""Apply the paper's consistency rules: keep a step only if judge and rating agree.

Reads   artifacts/steps/steps.parquet, artifacts/labels/labels.parquet
Writes  artifacts/clean/{clean,drops}.parquet, metrics/filter.json
Run     python -m stages.filter

A step rated -1 by a human, or "-" by Monte Carlo, is dropped if its labels are all ones. A Monte-Carlo "+" is kept only
if its labels are all ones. A step without scores is dropped under the name of its outcome. Source: paper section 3.3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from evidence.record.stage import stage
from ground.io import DataError, read_parquet, write_parquet
from pathfinder.core.labels import STEP_LABELS, correctness, drop_reason
from pathfinder.core.metrics import account, write_metrics
from pathfinder.core.records import CLEAN, DROPS, LABELS, STEPS
from pathfinder.data.metrics import Filter

STEPS_FILE = Path("artifacts/steps/steps.parquet")
LABELS_FILE = Path("artifacts/labels/labels.parquet")
CLEAN_FOLDER = Path("artifacts/clean")
METRICS = Path("metrics/filter.json")


def decide(steps: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Join steps and labels and add the column ``reason``, null if kept; raises ``DataError`` unless the ids match."""
    if labels["id"].n_unique() != len(labels) or steps["id"].n_unique() != len(steps):
        raise DataError(f"{LABELS_FILE} or {STEPS_FILE}: ids repeat; re-run prepare and label")
    joined = steps.select("id", "source", "rating").join(labels, on="id", how="inner", maintain_order="left")
    if len(joined) != len(steps) or len(labels) != len(steps):
        raise DataError(
            f"{LABELS_FILE}: {len(labels)} labels for {len(steps)} steps, {len(joined)} in common; re-run label"
        )
    return joined.with_columns(correctness=correctness(), reason=drop_reason())


@stage
def main() -> None:
    """Run the stage."""
    decided = decide(read_parquet(STEPS_FILE, STEPS), read_parquet(LABELS_FILE, LABELS))
    kept = decided.filter(pl.col("reason").is_null()).select(*CLEAN)
    dropped = decided.filter(pl.col("reason").is_not_null()).select(*DROPS)
    write_parquet(CLEAN_FOLDER / "clean.parquet", kept)
    write_parquet(CLEAN_FOLDER / "drops.parquet", dropped)
    positives: dict[str, Any] = {label: kept[label].mean() if len(kept) else None for label in STEP_LABELS}
    write_metrics(METRICS, Filter(**dict(account(decided)), positive_share=positives))


if __name__ == "__main__":
    main()
