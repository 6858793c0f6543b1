"""Lists of the stages, outs, records and runs, now or at a git revision."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from evidence.dvc import history
from evidence.dvc.history import Locked, Record
from evidence.settings import SETTINGS
from evidence.verbs.revision import at
from ground.settings import read_yaml

Kind = Literal["stages", "outs", "records", "runs"]
Rows = list[dict[str, Any]]


def rows_of(kind: Kind, root: Path, revision: str | None = None) -> Rows:
    """One row per stage, out, record or training run; raises ``DataError`` if the revision has no lock."""
    with at(root, revision) as folder:
        stages = history.read_lock(folder)
        if kind == "outs":
            return [row for stage in stages.values() for row in _outs(stage)]
        if kind == "runs":
            return _runs(read_yaml(folder / "params.yaml"), stages)
        records = {name: history.known_records(folder, name) for name, stage in stages.items() if stage.cmd}
        if kind == "records":
            return [_record(record, stages[name]) for name, found in records.items() for record in found]
        return [_stage(stage, records.get(stage.name, [])) for stage in stages.values()]


def _stage(stage: Locked, records: list[Record]) -> dict[str, Any]:
    made = next((record for record in records if record.made(stage)), None)
    return {
        "stage": stage.name,
        "command": stage.cmd or None,
        "outs": len(stage.outs),
        "record": made.digest if made else None,
        "seconds": made.content["times"]["seconds"] if made else None,
        "records": len(records),
    }


def _outs(stage: Locked) -> Rows:
    return [
        {"out": path, "md5": md5, "bytes": stage.sizes[path][0], "files": stage.sizes[path][1], "stage": stage.name}
        for path, md5 in stage.outs.items()
    ]


def _record(record: Record, stage: Locked) -> dict[str, Any]:
    content = record.content
    row = {"stage": stage.name, "record": record.digest, f"made what {history.MAIN_LOCK} has": record.made(stage)}
    if not content:
        return row | {"started": None, "seconds": None, "commit": None, "host": None, "flow run": None}
    actor = content.get("actor") or {}
    return row | {
        "started": content["times"]["start"],
        "seconds": content["times"]["seconds"],
        "commit": content["git"]["commit"],
        "host": actor.get("host"),
        "flow run": actor.get("flow_run"),
    }


def _runs(params: Mapping[str, Any], stages: Mapping[str, Locked]) -> Rows:
    """The models that params.yaml trains, and the stages of the lock that used each."""
    rows = []
    for run in params.get("runs", ()):
        model = f"{SETTINGS.models}{run}"
        maker = next((stage for stage in stages.values() if model in stage.outs), None)
        users = [stage.name for stage in stages.values() if model in stage.deps]
        rows.append(
            {
                "run": run,
                "model": model,
                "md5": maker.outs[model] if maker else None,
                "bytes": maker.sizes[model][0] if maker else None,
                "stage": maker.name if maker else None,
                "used by": users,
            }
        )
    return rows
