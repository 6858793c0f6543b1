"""The record of an executed stage: what it read, ran on and wrote, with digests, written after it succeeded.

Records lie in ``.pathfinder/lineage/<stage>/<sha256 of the file>.json``, outside the outs (they hold times); the name
shows when somebody edits one.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from stages.core.io import DataError, write_text
from stages.lineage.closure import import_closure, module_of
from stages.lineage.environment import describe_commit, describe_environment, peak_rss_bytes
from stages.lineage.hashing import digest_path
from stages.lineage.pipeline import Stage, read_pipelines

RECORDS = Path(".pathfinder/lineage")
LOCK_FILES = ("infra/requirements-cpu.lock", "infra/requirements-cuda.lock")
"""Part of every stage's identity: dvc.yaml lists them as dependencies of each."""


@contextmanager
def recorded(stage: str, variant: str | None = None) -> Iterator[None]:
    """Run a stage's work and record it; nothing is written when the work raises.

    Paths are those of dvc.yaml, relative to the current folder. A stage that dvc.yaml does not list (a module run by
    hand somewhere else) runs without a record and says so. Raises ``DataError`` when a declared out was not written.
    """
    definition = find_stage(stage, variant)
    if definition is None:
        name = f"{stage}@{variant}" if variant else stage
        print(f"{name}: dvc.yaml here does not list this stage; no lineage record is kept", file=sys.stderr)
        yield
        return
    before = _before(definition)
    start, clock = datetime.now(UTC), time.monotonic()
    yield
    seconds = time.monotonic() - clock
    record = before | {
        "outputs": {path: _digest(definition, path) for path in definition.all_outs},
        "environment": describe_environment(),
        "times": {
            "start": start.isoformat(timespec="seconds"),
            "end": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "peak_rss_bytes": peak_rss_bytes(),
        },
    }
    write_record(record)


def find_stage(stage: str, variant: str | None) -> Stage | None:
    """The stage of this name, or the one whose command runs this module with this variant (``control``)."""
    if not Path("dvc.yaml").exists():
        return None
    stages = read_pipelines()
    name, cmd = stage, f"python -m stages.{stage}"
    if variant:
        name, cmd = f"{stage}@{variant}", f"{cmd} {variant}"
    return stages.get(name) or next((entry for entry in stages.values() if entry.cmd == cmd), None)


def write_record(record: dict[str, Any], root: Path = Path(".")) -> Path:
    """Store a record under the digest of its own bytes; returns where."""
    text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = root / RECORDS / str(record["stage"]) / f"{digest}.json"
    write_text(path, text)
    return path


def _before(stage: Stage) -> dict[str, Any]:
    """The part of the record that must be taken before the work starts."""
    module = module_of(stage.cmd)
    code = import_closure(module) if module else ()
    inputs = [path for path in stage.deps if path not in code and path not in LOCK_FILES]
    return {
        "stage": stage.name,
        "cmd": stage.cmd,
        "inputs": {path: _digest(stage, path) for path in inputs},
        "params": _params(stage),
        "code": {path: _digest(stage, path) for path in code},
        "git": describe_commit([*code, *LOCK_FILES, stage.file, stage.params_file]),
        "locks": {path: _digest(stage, path) for path in LOCK_FILES if Path(path).exists()},
    }


def _digest(stage: Stage, path: str) -> dict[str, Any]:
    try:
        return digest_path(Path(path)).as_json()
    except FileNotFoundError as error:
        raise DataError(
            f"stage {stage.name}: {path} is not there although dvc.yaml names it; `dvc repro {stage.name}` makes what "
            "the stage reads, and the stage must write every out that it declares"
        ) from error


def _params(stage: Stage) -> dict[str, Any]:
    """The values of the keys (sections, or dotted names below them) that dvc.yaml says the stage reads."""
    if not stage.params:
        return {}
    content = yaml.safe_load(Path(stage.params_file).read_text(encoding="utf-8"))
    return {key: _value(stage, content, key) for key in stage.params}


def _value(stage: Stage, content: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(content, dict) or part not in content:
            remedy = "Write one with `pathfinder profile NAME`" if stage.file == "dvc.yaml" else "Restore it with git"
            raise DataError(f"{stage.params_file}: no key {key}; {stage.file} names it. {remedy}")
        content = content[part]
    return content
