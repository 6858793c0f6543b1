"""Measure the judge and the consistency filter against the ground truth of a generated world.

Reads   artifacts/steps/{steps,trajectories}.parquet, artifacts/labels/labels.parquet, artifacts/clean/clean.parquet
Writes  metrics/truth.json (percent, with intervals)
Run     python -m stages.truth

Only the report uses this ground truth; training sees only the judge's labels. For real sources the truth is unknown,
and the figures are null.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from evidence.record.stage import stage
from ground.io import read_parquet
from pathfinder.core.metrics import write_metrics
from pathfinder.core.params import load_params
from pathfinder.core.records import CLEAN, LABELS, STEPS, TRAJECTORIES
from pathfinder.data.metrics import Truth
from world.truth import figures, known

STEPS_FOLDER = Path("artifacts/steps")
LABELS_FILE = Path("artifacts/labels/labels.parquet")
CLEAN_FILE = Path("artifacts/clean/clean.parquet")
METRICS = Path("metrics/truth.json")


@stage
def main() -> None:
    """Run the stage."""
    report = load_params().report
    labels = read_parquet(LABELS_FILE, LABELS)
    rows = known(
        read_parquet(STEPS_FOLDER / "steps.parquet", STEPS),
        read_parquet(STEPS_FOLDER / "trajectories.parquet", TRAJECTORIES),
        labels,
        read_parquet(CLEAN_FILE, CLEAN)["id"],
    )
    judged = len(labels.filter((pl.col("origin") == "judge") & pl.col("math").is_not_null()))
    groups = rows.partition_by("group", as_dict=True, maintain_order=True)
    by_group = {str(name): figures(part, report) for (name,), part in sorted(groups.items())}
    write_metrics(METRICS, Truth(judged=judged, all=figures(rows, report), groups=by_group))


if __name__ == "__main__":
    main()
