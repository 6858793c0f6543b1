"""``list`` and ``view``: the stages, outs, records and runs, now or at a git revision, and the facts about one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from evidence.audit.pointers import value_at
from evidence.audit.records import records_of
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.record.environment import git
from evidence.record.identity import is_code
from evidence.record.ledger import RECORDS
from evidence.record.reading import Record, attesting, read_record, record_folders
from evidence.settings import SETTINGS
from evidence.verbs.targets import Files, at, target_of
from ground.io import DataError
from ground.settings import read_yaml

Kind = Literal["stages", "outs", "records", "runs"]
Rows = list[dict[str, Any]]
MADE = f"made what {history.MAIN_LOCK} has"


def rows_of(kind: Kind, root: Path, revision: str | None = None) -> Rows:
    """One row per stage, out, record or training run; raises ``DataError`` if the revision has no lock."""
    files = Files(root, revision)
    if kind == "runs":
        with at(root, revision) as folder:
            params = folder / "params.yaml"
            runs = read_yaml(params).get("runs") if params.exists() else None
        return [_run_row(run, files) for run in runs] if isinstance(runs, list) else []
    rows = {"stages": _stage_rows, "outs": _out_rows, "records": _record_rows}[kind]
    return [row for stage in files.stages.values() for row in rows(stage, records_of(root, stage.name))]


def _stage_rows(stage: Locked, records: list[Record]) -> Iterator[dict[str, Any]]:
    made = attesting(records, stage)
    yield {
        "stage": stage.name,
        "command": stage.cmd or None,
        "outs": len(stage.outs),
        "record": made.digest if made else None,
        "seconds": made.content["times"]["seconds"] if made else None,
        "records": len(records),
    }


def _out_rows(stage: Locked, _: list[Record]) -> Iterator[dict[str, Any]]:
    for path, md5 in stage.outs.items():
        about = stage.about(path)
        yield {"out": path, "md5": md5, "bytes": about.size, "files": about.nfiles, "stage": stage.name}


def _record_rows(stage: Locked, records: list[Record]) -> Iterator[dict[str, Any]]:
    for record in records:
        times, git, actor = (record.content.get(key) or {} for key in ("times", "git", "actor"))
        yield {
            "stage": stage.name,
            "record": record.digest,
            MADE: record.made(stage),
            "started": times.get("start"),
            "seconds": times.get("seconds"),
            "commit": git.get("commit"),
            "host": actor.get("host"),
            "flow run": actor.get("flow_run"),
        }


def _run_row(run: str, files: Files) -> dict[str, Any]:
    """A model that params.yaml trains, and the stages of the lock that used it."""
    model = f"{SETTINGS.models}{run}"
    maker = next((stage for stage in files.stages.values() if model in stage.outs), None)
    return {
        "run": run,
        "model": model,
        "md5": maker.outs[model] if maker else None,
        "bytes": maker.about(model).size if maker else None,
        "stage": maker.name if maker else None,
        "used by": [stage.name for stage in files.stages.values() if model in stage.deps],
    }


_DIGEST = re.compile(r"[0-9a-f]{6,64}")


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
    if stage := files.stages.get(target.name):
        return _stage(stage, records_of(root, stage.name))
    if stage := files.maker(target.name):
        return _out(target.name, stage, files)
    size, is_tracked = len(files.read(target.name)), target.revision or git("ls-files", "--", target.name, root=root)
    return {"path": target.name, "tracked by": "git" if is_tracked else None, "bytes": size}


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
        problem = record.problem or f"{record.path.parent.name}/{record.path.name}: was edited"
        raise DataError(f"{problem}; run `{SETTINGS.command} check`")
    return record


def _stage(stage: Locked, records: list[Record]) -> dict[str, Any]:
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


def _out(path: str, stage: Locked, files: Files) -> dict[str, Any]:
    md5, made, listing = files.md5(path), files.made(stage), files.listing(path)
    found: dict[str, Any] = {"path": path, "md5": md5, "made by": stage.name}
    if md5 is None:
        raise DataError(
            f"{path}: {stage.name} makes no such file, or no store of this machine lists the files of its folder"
        )
    if path in stage.outs:
        count = stage.about(path).nfiles
        found |= {"bytes": stage.about(path).size} | ({"number of files": count} if count is not None else {})
    if made and (entry := made.content["outputs"].get(path)):
        found["sha256"] = entry["sha256"]
    found["in the project"] = (files.root / path).exists()
    found["in a store"] = bool(files.object(md5) or (listing and all(map(files.object, listing.values()))))
    found["record"] = _record(made, stage) if made else None
    if listing:
        found["files"] = listing
    found["read by"] = [
        user.name for user in files.stages.values() if any(history.overlap(dep, path) for dep in user.deps)
    ]
    return found


def _record(record: Record, stage: Locked) -> dict[str, Any]:
    known = {"digest": record.digest, MADE: record.made(stage)}
    if not record.content:
        return known | {"problem": record.problem}
    times = {key: record.content["times"][key] for key in ("start", "seconds")}
    return {**known, **times, **record.content["git"]}
