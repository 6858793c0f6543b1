"""``lineage view``: one stage, out, record or value of a JSON file, now or at a git revision."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from evidence.dvc import history
from evidence.dvc.history import Locked, Record
from evidence.dvc.stores import listing_of
from evidence.record.identity import is_code
from evidence.record.ledger import RECORDS
from evidence.settings import SETTINGS
from evidence.verbs.pointers import value_at
from evidence.verbs.revision import at
from evidence.verbs.targets import Files, maker_of, target_of
from ground.io import DataError

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
            return _stage(stage, history.known_records(folder, stage.name))
        if stage := maker_of(files.stages, target.name):
            return _out(target.name, stage, files, history.known_records(folder, stage.name))
    return _tracked(target.name, files)


def record_named(text: str, root: Path) -> Record | None:
    """The record whose digest begins with the text; ``None`` if there is none.

    Raises ``DataError`` if there are several.
    """
    if not _DIGEST.fullmatch(text):
        return None
    places = [*history.record_folders(root), root / RECORDS]
    found = list({path.stem: path for place in places for path in place.glob(f"*/{text}*.json")}.values())
    if len(found) > 1:
        names = ", ".join(f"{path.parent.name} {path.stem[:16]}" for path in found)
        raise DataError(f"{text}: {len(found)} records begin with it ({names}); write more of the digest")
    if not found:
        return None
    record = history.read_record(found[0], root)
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
    made = next((record for record in records if record.made(stage)), None)
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


def _tracked(path: str, files: Files) -> View:
    content = files.read(path)
    return {"path": path, "tracked by": "git", "bytes": len(content)}
