"""The whole pipeline at a small size: the shipped world cut to a few problems, and every stage in order."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from pathfinder.planning.profiles import render

ROOT = Path(__file__).resolve().parents[3]
RUN = "full"
STAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("download", ()),
    ("prepare", ()),
    ("label", ()),
    ("filter", ()),
    ("truth", ()),
    ("validate", ()),
    ("build", ()),
    ("validate", ("train",)),
    ("export", ()),
    ("train", (RUN,)),
    ("processbench", (RUN,)),
    ("prmbench", (RUN,)),
    ("sample", ()),
    ("control", ()),
    ("search", (RUN,)),
    ("report", ("index",)),
    ("report", ()),
)
"""The stages of the quickstart in order, each with its arguments."""
VOLATILE = (".pathfinder/lineage/*", ".pathfinder/running/*", ".pathfinder/data_docs*")
"""Records, locks and Great Expectations' pages, which contain times or processes."""
_LINES = {"phase1_train": 20, "phase1_test": 4, "phase2_train": 60, "phase2_test": 4, "mistral": 40}
_SETTINGS: dict[str, dict[str, Any]] = {
    "label": {"prm800k_limit": 20, "mistral_per_rating": 5, "batch_size": 8, "max_tokens": 128},
    "validate": {
        "min_parsed_share": 0.0,
        "max_dropped_share": 1.0,
        "min_agreement": 0.0,
        "min_positive_share": 0.0,
        "max_positive_share": 1.0,
    },
    "build": {"test_share": 0.2, "mistral_records": 20, "max_records": 150},
    "train": {"batch_samples": 32, "save_every": 2},
    "processbench": {"limit": 3},
    "prmbench": {"limit": 2},
    "search": {"limit": 1, "n": 2, "max_rounds": 2, "solution_tokens": 24, "max_tokens": 12, "sets": ["math", "amc23"]},
    "report": {"bootstrap_samples": 50},
}


def make(folder: Path) -> None:
    """Write the world, ``params.yaml`` and links to the code into ``folder``."""
    for name in ("dvc.yaml", "infra", "ground", "pathfinder", "evidence", "extras", "world", "stages"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "exclusions.jsonl").touch()
    _cut(ROOT / "data", folder / "data")
    params = yaml.safe_load(render(ROOT, "quickstart"))
    for section, values in _SETTINGS.items():
        params[section] |= values
    (folder / "params.yaml").write_text(yaml.safe_dump(params | {"runs": [RUN]}), encoding="utf-8")


def _cut(world: Path, folder: Path) -> None:
    """The first lines of each file of the world; models whole."""
    shutil.copytree(world / "models", folder / "models")
    shutil.copy(world / "world.json", folder)
    for path in sorted(path for path in world.rglob("*") if path.is_file() and "models" not in path.parts):
        made = folder / path.relative_to(world)
        made.parent.mkdir(exist_ok=True)
        name = path.name.partition(".")[0]
        if path.suffix == ".gz":
            lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)[: _LINES[name]]
            made.write_bytes(gzip.compress(b"".join(lines), mtime=0))
        elif path.suffix == ".json" and path.parent != world:
            made.write_text(json.dumps(json.loads(path.read_text())[:4]), encoding="utf-8")
        elif path.suffix == ".jsonl":
            made.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
