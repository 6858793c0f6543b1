"""``list`` and ``view``: the stages, outs, records and runs, now or at a git revision, and all about one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from evidence.audit.pointers import value_at
from evidence.audit.records import records_of
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.stores import listing_of
from evidence.record.identity import is_code
from evidence.record.ledger import RECORDS
from evidence.record.reading import Record, attesting, read_record, record_folders
from evidence.settings import SETTINGS
from evidence.verbs.targets import Files, at, maker_of, target_of
from ground.io import DataError
from ground.settings import read_yaml

Kind = Literal["stages", "outs", "records", "runs"]
Rows = list[dict[str, Any]]


def rows_of(kind: Kind, root: Path, revision: str | None = None) -> Rows:
    """One row per stage, out, record or training run; raises ``DataError`` if the revision has no lock."""
    with at(root, revision) as folder:
        stages = history.read_lock(folder)
        if kind == "outs":
            return [row for stage in stages.values() for row in _out_rows(stage)]
        if kind == "runs":
            return _run_rows(read_yaml(folder / "params.yaml"), stages)
        records = {name: records_of(folder, name) for name, stage in stages.items() if stage.cmd}
        if kind == "records":
            return [_record_row(record, stages[name]) for name, found in records.items() for record in found]
        return [_stage_row(stage, records.get(stage.name, [])) for stage in stages.values()]


def _stage_row(stage: Locked, records: list[Record]) -> dict[str, Any]:
    made = attesting(records, stage)
    return {
        "stage": stage.name,
        "command": stage.cmd or None,
        "outs": len(stage.outs),
        "record": made.digest if made else None,
        "seconds": made.content["times"]["seconds"] if made else None,
        "records": len(records),
    }


def _out_rows(stage: Locked) -> Rows:
    return [
        {"out": path, "md5": md5, "bytes": stage.sizes[path][0], "files": stage.sizes[path][1], "stage": stage.name}
        for path, md5 in stage.outs.items()
    ]


def _record_row(record: Record, stage: Locked) -> dict[str, Any]:
    times, git, actor = (record.content.get(key) or {} for key in ("times", "git", "actor"))
    return {
        "stage": stage.name,
        "record": record.digest,
        f"made what {history.MAIN_LOCK} has": record.made(stage),
        "started": times.get("start"),
        "seconds": times.get("seconds"),
        "commit": git.get("commit"),
        "host": actor.get("host"),
        "flow run": actor.get("flow_run"),
    }


def _run_rows(params: Mapping[str, Any], stages: Mapping[str, Locked]) -> Rows:
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


_DIGEST = re.compile(r"[0-9a-f]{6,64}")
View = dict[str, Any]


def view(text: str, root: Path, revision: str | None = None) -> Any:
    """The facts about a stage, an out or a file in one, a record (by its digest), or a value (``X#/pointer``).

    Raises ``DataError`` if there is no such thing, or several records begin with the digest.
    """
    if record := record_named(text, root):
        return {"record": record.digest} | record.content
    target = target_of(text, root, revision)
    files = Files(root, target.revision)
    if target.pointer is not None:
        return value_at(files.value(target.name), target.pointer, target.name)
    with at(root, target.revision) as folder:
        if stage := files.stages.get(target.name):
            return _stage(stage, records_of(folder, stage.name))
        if stage := maker_of(files.stages, target.name):
            return _out(target.name, stage, files, records_of(folder, stage.name))
    return {"path": target.name, "tracked by": "git", "bytes": len(files.read(target.name))}


def record_named(text: str, root: Path) -> Record | None:
    """The record whose digest begins with the text; ``None`` if there is none.

    Raises ``DataError`` if there are several.
    """
    if not _DIGEST.fullmatch(text):
        return None
    places = [*record_folders(root), root / RECORDS]
    found = list({path.stem: path for place in places for path in place.glob(f"*/{text}*.json")}.values())
    if len(found) > 1:
        names = ", ".join(f"{path.parent.name} {path.stem[:16]}" for path in found)
        raise DataError(f"{text}: {len(found)} records begin with it ({names}); write more of the digest")
    if not found:
        return None
    record = read_record(found[0], root)
    if not record.is_intact:
        raise DataError(
            f"{found[0].relative_to(root)}: {record.problem or 'was edited'}; run `{SETTINGS.command} check`"
        )
    return record


def _stage(stage: Locked, records: list[Record]) -> View:
    return {
        "stage": stage.name,
        "command": stage.cmd or None,
        "file": stage.file,
        "params": stage.params,
        "data": {path: md5 for path, md5 in stage.deps.items() if not is_code(path)},
        "code": {path: md5 for path, md5 in stage.deps.items() if is_code(path)},
        "outs": stage.outs,
        "records": [_record(record, stage) for record in records],
    }


def _out(path: str, stage: Locked, files: Files, records: list[Record]) -> View:
    md5 = files.md5(path)
    made = attesting(records, stage)
    found: View = {"path": path, "md5": md5, "made by": stage.name}
    if md5 is None:
        raise DataError(
            f"{path}: {stage.name} makes no such file, or no store of this machine lists the files of its folder"
        )
    if path in stage.outs:
        size, count = stage.sizes[path]
        found |= {"bytes": size} | ({"number of files": count} if count is not None else {})
    if made and (entry := made.content["outputs"].get(path)):
        found["sha256"] = entry["sha256"]
    found["in the project"] = (files.root / path).exists()
    found["in a store"] = files.object(md5) is not None
    found["record"] = _record(made, stage) if made else None
    if listing := listing_of(files.stores, md5):
        found["files"] = listing
    found["read by"] = [
        user.name for user in files.stages.values() if any(history.overlap(dep, path) for dep in user.deps)
    ]
    return found


def _record(record: Record, stage: Locked) -> View:
    known: View = {"digest": record.digest, f"made what {history.MAIN_LOCK} has": record.made(stage)}
    if not record.content:
        return known | {"problem": record.problem}
    times = {key: record.content["times"][key] for key in ("start", "seconds")}
    return {**known, **times, **record.content["git"]}
