"""The metrics of a finished run in one small file and in a few lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flows.terminal import leaves
from pathfinder.core.settings import read_yaml
from pathfinder.lineage.history import read_lock
from pathfinder.provenance.pipeline import read_pipeline

RESULTS = "results.json"
_MOST_LINES = 40


def collect(root: Path) -> dict[str, Any]:
    """Every number of the metrics files that exist, by file and dotted key."""
    stages = read_pipeline(root).values()
    paths = sorted({path for stage in stages for path in stage.metrics if (root / path).is_file()})
    return {path: _numbers(json.loads((root / path).read_text(encoding="utf-8"))) for path in paths}


def summary_lines(root: Path) -> list[str]:
    """A subject, and the numbers at the top level of each metrics file."""
    profile = read_yaml(root / "params.yaml").get("profile", "")
    lines = [f"Run {profile or 'the pipeline'}: {len(read_lock(root))} stages are current"]
    for path, numbers in collect(root).items():
        top = [f"{key} {value:.6g}" for key, value in numbers.items() if "." not in key]
        lines += [f"{path}: {', '.join(top)}"] if top else []
    return [*lines[:_MOST_LINES], *(["…"] if len(lines) > _MOST_LINES else [])]


def _numbers(content: Any) -> dict[str, float]:
    found = leaves(content)
    return {name: value for name, value in found if isinstance(value, (int, float)) and not isinstance(value, bool)}
