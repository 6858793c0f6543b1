"""The summary of a finished run: the metrics that git holds, in a few lines."""

from __future__ import annotations

from pathlib import Path

from evidence.dvc.history import read_lock
from evidence.dvc.pipeline import read_pipeline
from flows.terminal import leaves
from ground.io import read_json
from ground.settings import read_yaml

_MOST_LINES = 40


def summary_files(root: Path) -> list[str]:
    """The metrics files of dvc.yaml, which git holds: those that ``dvc metrics`` shows."""
    return sorted({path for stage in read_pipeline(root).values() for path in stage.metrics})


def summary_lines(root: Path) -> list[str]:
    """A subject, and one line for each number of the metrics."""
    profile = read_yaml(root / "params.yaml").get("profile", "")
    lines = [f"Run {profile or 'the pipeline'}: {len(read_lock(root))} stages are current"]
    for path in summary_files(root):
        found = leaves(read_json(root / path)) if (root / path).is_file() else ()
        lines += [f"{name} {value:.6g}" for name, value in found if isinstance(value, (int, float))]
    return [*lines[:_MOST_LINES], *(["…"] if len(lines) > _MOST_LINES else [])]
