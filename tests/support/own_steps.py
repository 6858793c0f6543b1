"""Labelled steps of the small world in the form of our own export, and files of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ground.io import read_jsonl
from pathfinder.data.export import stepwise_rows
from pathfinder.data.prm800k import read_prm800k

ROOT = Path(__file__).resolve().parents[2]


def world_trees(lines: int) -> Iterator[dict[str, Any]]:
    """Trees of rated steps: correctness is 1 for a rating of 1, and the other labels are 0 for a rating of -1."""
    for number, line in itertools.islice(read_jsonl(ROOT / "data/prm800k/phase1_train.jsonl.gz"), lines):
        reading = read_prm800k(line, "repaired")
        branches = [
            {"id": f"{number}-{place}-{other}", "step_index": index, "step": step}
            | {"math": int(rating >= 0), "consistency": int(rating >= 0), "correctness": int(rating == 1)}
            for place, other, index, step, rating in reading.records
            if rating is not None
        ]
        yield {"problem": reading.problem, "steps": list(reading.trunk), "branches": branches}


def world_rows(lines: int) -> list[dict[str, Any]]:
    """The rows of the export ``trl``."""
    keys = ("prompt", "completions", "labels")
    return [dict(zip(keys, row, strict=True)) for tree in world_trees(lines) for row in stepwise_rows(tree)]


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
