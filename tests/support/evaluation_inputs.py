"""A project folder in which the evaluation stages run: the small world, and its base model as every model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from ground.io import read_jsonl

ROOT = Path(__file__).resolve().parents[2]
VARIANTS = ("full", "no_error_categories", "no_subtasks")


def evaluation_project(folder: Path, world: Path, **changes: dict[str, Any]) -> None:
    """Fill ``folder`` with the quickstart's parameters; ``changes`` overrides values of their sections."""
    raw = folder / "artifacts" / "raw"
    (raw / "models").mkdir(parents=True)
    for name in ("processbench", "prmbench", "search"):
        shutil.copytree(world / name, raw / name)
    shutil.copytree(world / "models" / "base", raw / "models" / "policy")
    for variant in VARIANTS:
        shutil.copytree(world / "models" / "base", folder / "models" / variant)
        (folder / "models" / variant / "pathfinder.json").write_text(json.dumps({"variant": variant}))
    profiles = ROOT / "infra" / "profiles"
    params = yaml.safe_load((profiles / "paper.yaml").read_text())
    quickstart = yaml.safe_load((profiles / "quickstart.yaml").read_text())
    for section, values in (quickstart | {"report": {"bootstrap_samples": 50}}).items():
        params[section] = params[section] | values if isinstance(values, dict) else values
    for section, values in changes.items():
        params[section] = params[section] | values
    (folder / "params.yaml").write_text(yaml.safe_dump(params))


def rows_of(path: Path) -> list[Any]:
    """All rows of a JSON Lines file."""
    return [row for _, row in read_jsonl(path)]
