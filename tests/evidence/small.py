"""A small project as after a run, written by hand in milliseconds: two stages, shipped data, a cache and records.

``tests/support/miniature.py`` makes a project with DVC. That takes seconds, too long for tests that run per mutant.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from evidence.dvc.stores import object_file
from evidence.record.ledger import RECORDS, SIGNED, enter
from evidence.record.signing import sign
from evidence.record.statement import HEAD, PAYLOAD_TYPE, statement_of
from evidence.verbs.check import check
from ground.hashing import digest_path
from ground.io import sha256_file, write_json

DATA, RAW, MODEL = "data", "artifacts/raw", "models/full"
FILES = {f"{DATA}/corpus/one.txt": "one\n", f"{RAW}/corpus/one.txt": "one\n", f"{MODEL}/weights.txt": "0.5\n"}
PRETRAINED = "artifacts/pretraining/quickstart/shipped/corpus"
"""The out that data/corpus is a copy of."""
NOTE = "note: .pathfinder/lineage: no record of the run in dvc.lock (world)"
"""The note of every check: nobody has the record of the run that made the shipped data."""
SOUND = "SOUND: 2 of 2 stages attested by this user's own key; workspace, cache, remote storage read; no git repository"
"""The summary of a check of the project as it was written."""
_MAIN: dict[str, dict[str, Any]] = {
    "download": {"cmd": "python -m stages.download", "deps": [DATA], "outs": [RAW]},
    "train": {"cmd": "python -m stages.train", "deps": [RAW], "params": ["rate"], "outs": [MODEL]},
}
_WORLD: dict[str, dict[str, Any]] = {"world": {"wdir": "../..", "cmd": "python -m world", "outs": [PRETRAINED]}}
_PARAMS = {"rate": 0.5}
_FACTS = {
    "git": dict.fromkeys(["commit", "dirty", "changed"]),
    "environment": {"cpu": "one"},
    "rooms": {},
    "code": {},
    "actor": None,
}
START = "2026-01-01T00:00:00+00:00"


def write_project(folder: Path) -> None:
    """Write the project; its remote is the folder ``storage``, which has no objects."""
    texts = FILES | {"params.yaml": yaml.safe_dump(_PARAMS), "dvc.yaml": yaml.safe_dump({"stages": _MAIN})}
    texts["infra/pretraining/dvc.yaml"] = yaml.safe_dump({"stages": _WORLD})
    texts[".dvc/config"] = "['remote \"storage\"']\n    url = ../storage\n"
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    files = {"one.txt": {"sha256": sha256_file(folder / DATA / "corpus/one.txt"), "bytes": 4}}
    source = {"kind": "shipped", "location": "data/corpus", "revision": None, "licence": "MIT", "files": files}
    write_json(folder / RAW / "manifest.json", {"corpus": source})
    (folder / "data.dvc").write_text(yaml.safe_dump({"outs": [claim(folder, DATA)]}))
    (folder / "storage").mkdir()
    write_locks(folder)
    for path in (DATA, RAW, MODEL):
        store(folder, path)
    for stage in _MAIN:
        add_record(folder, stage)


def write_locks(folder: Path) -> None:
    """Write both dvc.lock files for the project as it is."""
    stages: dict[str, Any] = {}
    for name, stage in _MAIN.items():
        stages[name] = {"cmd": stage["cmd"], **{k: [claim(folder, p) for p in stage[k]] for k in ("deps", "outs")}}
    stages["train"]["params"] = {"params.yaml": _PARAMS}
    (folder / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
    made = {"cmd": "python -m world", "outs": [claim(folder, "data/corpus") | {"path": PRETRAINED}]}
    text = yaml.safe_dump({"schema": "2.0", "stages": {"world": made}})
    (folder / "infra/pretraining/dvc.lock").write_text(text)


def claim(folder: Path, path: str) -> dict[str, Any]:
    """The entry of a lock about a path."""
    digest = digest_path(folder / path)
    return {"path": path, "hash": "md5", "md5": digest.md5, "size": digest.size}


def store(folder: Path, path: str, name: str = ".dvc/cache") -> None:
    """Put the objects of a folder into a store."""
    digest = digest_path(folder / path)
    contents = {file.md5: (folder / path / below).read_bytes() for below, file in digest.files.items()}
    listing = [{"md5": digest.files[below].md5, "relpath": below} for below in sorted(digest.files)]
    for md5, content in {**contents, digest.md5: json.dumps(listing, sort_keys=True).encode()}.items():
        object_file(folder / name, md5).parent.mkdir(parents=True, exist_ok=True)
        object_file(folder / name, md5).write_bytes(content)


def add_record(folder: Path, stage: str, is_signed: bool = True, **changes: object) -> Path:
    """Record a run of a stage that read and made the files as they are, apart from ``changes`` of the record."""
    body = (_MAIN | _WORLD)[stage]
    digests = {k: {path: digest_path(folder / path).as_json() for path in body.get(k, ())} for k in ("deps", "outs")}
    times = {"start": START, "end": START, "seconds": 1.0, "peak_rss_bytes": 1}
    record = {"schema": 3, "stage": stage, "cmd": body["cmd"], "times": times, **_FACTS}
    record |= {"inputs": digests["deps"], "outputs": digests["outs"], "params": _PARAMS if stage == "train" else {}}
    text = json.dumps(record | changes, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = folder / RECORDS / stage / f"{digest}.json"
    enter(stage, digest, partial(files_of, text, is_signed), folder)
    return path


def files_of(text: str, is_signed: bool, head: str) -> dict[str, str]:
    """The files of a record with this text, text by ending, that follows a head of the ledger."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    statement = json.dumps(statement_of(json.loads(text), digest, {HEAD: head}))
    return {".json": text} | ({SIGNED: json.dumps(sign(statement.encode(), PAYLOAD_TYPE))} if is_signed else {})


def found(root: Path, path: str | None = None, **options: Any) -> list[str]:
    """The findings of a check apart from ``NOTE``."""
    return [str(finding) for finding in check(path, root, **options).findings if str(finding) != NOTE]
