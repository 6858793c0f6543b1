"""The record of an executed stage: what it read, ran on and wrote, with digests, written after it succeeded.

Records lie in ``.pathfinder/lineage/<stage>/<sha256 of the file>.json``, outside the outs (they hold times); the name
shows when somebody edits one.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from pathfinder.core.io import DataError, write_text
from pathfinder.provenance.closure import import_closure, module_of
from pathfinder.provenance.environment import describe_commit, describe_environment, peak_rss_bytes
from pathfinder.provenance.hashing import digest_path
from pathfinder.provenance.identity import LOCKS, is_code
from pathfinder.provenance.pipeline import Stage, read_pipelines

RECORDS = Path(".pathfinder/lineage")
_RECORDING = "PATHFINDER_RECORDING"
"""Set while a stage is recorded, so that the processes it starts do not record it again."""


@contextmanager
def recorded(cmd: str) -> Iterator[None]:
    """Run a stage's work and record it under the stage of dvc.yaml with this command; no record if the work raises.

    Paths are those of dvc.yaml, relative to the current folder. A command that dvc.yaml does not list (a module run by
    hand elsewhere) runs unrecorded and says so. Of several processes of one stage only the first records. Raises
    ``DataError`` when the stage did not write a declared out.
    """
    if _RECORDING in os.environ or int(os.environ.get("RANK", "0")) > 0:
        yield
        return
    definition = find_stage(cmd)
    if definition is None:
        print(f"{cmd}: dvc.yaml here does not list this command; no lineage record is kept", file=sys.stderr)
        yield
        return
    os.environ[_RECORDING] = cmd
    try:
        yield from _recorded(definition)
    finally:
        del os.environ[_RECORDING]


def _recorded(definition: Stage) -> Iterator[None]:
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


def find_stage(cmd: str) -> Stage | None:
    """The stage of dvc.yaml here with this command."""
    if not Path("dvc.yaml").exists():
        return None
    return next((entry for entry in read_pipelines().values() if entry.cmd == cmd), None)


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
    inputs = [path for path in stage.deps if not is_code(path)]
    return {
        "stage": stage.name,
        "cmd": stage.cmd,
        "inputs": {path: _digest(stage, path) for path in inputs},
        "params": _params(stage),
        "code": {path: _digest(stage, path) for path in code},
        "git": describe_commit([*code, LOCKS, stage.file, stage.params_file]),
        "rooms": {path: _digest(stage, path) for path in stage.deps if is_code(path)},
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
