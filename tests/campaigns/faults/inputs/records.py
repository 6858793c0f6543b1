"""The formats of the audit: records, the ledger, signed envelopes and listings of folders."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from evidence.dvc.stores import read_listing
from evidence.record.ledger import LEDGER, read_ledger
from evidence.record.schema import SCHEMA, StageRecord
from evidence.record.signing import Envelope
from evidence.remote.publication import newest_entry
from evidence.remote.published import LogEntry, Manifest
from evidence.settings import parsed
from ground.io import read_json
from ground.remote import open_store
from tests.campaigns.faults.inputs.documents import (
    MISSING,
    Document,
    Field,
    Keys,
    View,
    is_sha256,
    is_some_text,
    is_whole,
    or_nothing,
    value_at,
)
from tests.campaigns.faults.inputs.nested import COVERED, Check, fixed, free, items, one, or_null, whole
from tests.campaigns.faults.inputs.settings import like, like_or_null

_FILE = {"md5": "0" * 32, "sha256": "0" * 64, "size": 3}
_RECORD: dict[str, Any] = {
    "schema": SCHEMA,
    "stage": "filter",
    "cmd": "python -m stages.filter",
    "inputs": {"a": _FILE},
    "rooms": {},
    "code": {"stages/filter.py": _FILE | {"files": None}},
    "params": {"a.b": 1},
    "outputs": {"b": _FILE | {"files": {"c": _FILE}}},
    "git": {"commit": "0" * 40, "dirty": False, "changed": []},
    "times": {
        "start": "2022-01-01T00:00:00+00:00",
        "end": "2022-01-01T00:00:01+00:00",
        "seconds": 1.0,
        "peak_rss_bytes": 9,
    },
    "environment": {"python": "3.11"},
    "journals": {"j": {"before": None, "after": {"size": 1, "sha256": "0" * 64}, "used": None}},
    "unlisted_modules": {},
    "unlocked_packages": {"a": ["1", None]},
    "processes": {"worker": 2},
}


def _model(path: Path, model: type[BaseModel], keys: list[Keys]) -> View:
    content = parsed(model, path.read_bytes() if path.is_file() else b"", str(path)).model_dump(by_alias=True)
    return [{one: value_at(content, one) for one in keys}]


def _is_md5(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{32}(\.dir)?", value) is not None


def _is_str(value: Any) -> bool:
    return isinstance(value, str)  # a lone surrogate is shown as an escape


def _is_count(value: Any) -> bool:
    return is_whole(value) and value >= 0


def _in_seconds(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(value)
    return float(value)


_TEXT, _COUNT, _MD5, _SHA256 = one(_is_str), one(_is_count), one(_is_md5), one(is_sha256)
_TRUTH, _ANY = one(lambda value: isinstance(value, bool)), one(lambda _: True)
_ENTRY = {"md5": _MD5, "sha256": _SHA256, "size": _COUNT}
_PATHS = free(fixed(_ENTRY, {"files": free(fixed(_ENTRY))}))
_STATE = or_null(fixed({"size": _COUNT, "sha256": _SHA256}))
_USED = fixed({"entries": _COUNT, "sha256": _SHA256, "ranges": items(items(_COUNT))})
_RECORD_FORM: dict[str, Check] = {
    "inputs": _PATHS,
    "rooms": _PATHS,
    "code": _PATHS,
    "params": free(_ANY),
    "outputs": _PATHS,
    "git": fixed({"commit": or_null(_TEXT), "dirty": or_null(_TRUTH), "changed": or_null(items(_TEXT))}),
    "times": fixed({"start": _TEXT, "end": _TEXT, "seconds": _in_seconds, "peak_rss_bytes": _COUNT}),
    "environment": free(_ANY),
    "journals": free(fixed({"before": _STATE, "after": _STATE}, {"used": _USED})),
    "unlisted_modules": free(_SHA256),
    "unlocked_packages": free(items(or_null(_TEXT))),
    "processes": free(_COUNT),
}
_LATER = ("journals", "unlisted_modules", "unlocked_packages", "processes")
"""Keys that records of earlier schemas do not have."""
_RECORD_KEYS: list[Keys] = [("schema",), ("stage",), ("cmd",), *((key,) for key in _RECORD_FORM)]
_RECORD_FIELDS: dict[Keys, Field] = {
    ("schema",): Field(lambda value: value is MISSING or (is_whole(value) and value in (1, 2, 3))),
    ("stage",): Field(_is_str),
    ("cmd",): Field(_is_str),
    **{(key,): whole(check, may_be_missing=key in _LATER) for key, check in _RECORD_FORM.items()},
    ("inputs", "a", "md5"): COVERED,
    ("inputs", "a", "size"): COVERED,
    ("outputs", "b", "files", "c", "sha256"): COVERED,
    ("git", "commit"): COVERED,
    ("git", "dirty"): COVERED,
    ("git", "changed"): COVERED,
    ("times", "seconds"): COVERED,
    ("journals", "j", "after", "size"): COVERED,
    ("unlocked_packages", "a"): COVERED,
    ("processes", "worker"): COVERED,
}
RECORD = Document(
    "record of a stage",
    f"filter/{'0' * 64}.json",
    (_RECORD,),
    _RECORD_FIELDS,
    lambda path: _model(path, StageRecord, _RECORD_KEYS),
    "object",
    is_strict=True,
    may_refuse=True,
)
_ENVELOPE = {
    "payloadType": "application/vnd.in-toto+json",
    "payload": "e30=",
    "signatures": [{"keyid": "a", "sig": "e30="}],
}
_ENVELOPE_KEYS: list[Keys] = [("payloadType",), ("payload",), ("signatures",), ("signatures", 0, "sig")]
ENVELOPE = Document(
    "signed envelope",
    "filter/a.dsse",
    (_ENVELOPE,),
    {keys: like(value_at(_ENVELOPE, keys)) for keys in _ENVELOPE_KEYS}
    | {("signatures", 0, "sig"): Field(lambda value: value is MISSING or isinstance(value, str))},  # unsigned
    lambda path: _model(path, Envelope, _ENVELOPE_KEYS),
    "object",
    is_strict=True,
    may_refuse=True,
)


def _entries() -> tuple[dict[str, Any], ...]:
    first = {"number": 1, "stage": "filter", "record": "0" * 64, "statement": None, "previous": None}
    line = json.dumps(first).encode() + b"\n"
    return first, {**first, "number": 2, "statement": "1" * 64, "previous": hashlib.sha256(line).hexdigest()}


_ENTRY_KEYS = ("number", "stage", "record", "statement", "previous")


def _ledger(path: Path) -> View:
    entries = read_ledger(path.parents[len(LEDGER.parts) - 1])
    if entries is None:  # the audit reports it (tests/evidence/test_check.py)
        read_json(path)
    assert entries is not None
    return [{(key,): getattr(entry, key) for key in _ENTRY_KEYS} for entry in entries]


_ENTRY_FIELDS: dict[Keys, Field] = {
    **{(key,): like_or_null(value) for key, value in _entries()[1].items()},
    ("statement",): Field(or_nothing(lambda value: isinstance(value, str))),
}
LEDGER_FILE = Document(
    "ledger of records",
    LEDGER.as_posix(),
    _entries(),
    _ENTRY_FIELDS,
    _ledger,
    may_be_empty=True,
    is_strict=True,
    may_refuse=True,
)


def _listing(path: Path) -> View:
    return [{("md5",): md5, ("relpath",): name} for name, md5 in read_listing(path).items()]


def _is_path(value: Any) -> bool:
    return is_some_text(value) and ".." not in value.split("/") and value[0] != "/" and "\0" not in value


LISTING = Document(
    "listing of a folder",
    "files/md5/00/0.dir",
    ({"md5": "0" * 32, "relpath": "a"}, {"md5": "1" * 32, "relpath": "b/c"}),
    {("md5",): Field(lambda value: _is_md5(value) and len(value) == 32), ("relpath",): Field(_is_path)},
    _listing,
    "list",
    may_be_empty=True,
    may_refuse=True,
)


def _log_entry(path: Path) -> View:
    """The part that the audit reads; the writer of the next entry reads the newest one too."""
    content = path.read_bytes() if path.is_file() else b""
    entry = parsed(LogEntry, content, str(path))
    assert newest_entry(open_store(str(path.parent.parent)))[1] == entry.manifest
    return [{(key,): getattr(entry, key) for key in ("manifest", "number", "previous")}]


def _written_on(path: Path) -> View:
    """The part that the writer of the next entry reads."""
    number, manifest, _ = newest_entry(open_store(str(path.parent.parent)))
    if not number:
        read_json(path)
    return [{("manifest",): manifest}]


_LOGGED = {"manifest": "0" * 64, "number": 2, "previous": "1" * 64}
LOG_ENTRY = Document(
    "entry of a remote's log",
    "log/00000002.json",
    (_LOGGED,),
    {
        ("manifest",): Field(is_sha256),
        ("number",): Field(lambda value: is_whole(value) and value >= 0),
        ("previous",): Field(lambda value: value is None or is_sha256(value)),
    },
    _log_entry,
    "object",
    is_strict=True,
    may_refuse=True,
)
NEWEST_ENTRY = Document(
    "entry before the next one",
    "log/00000002.json",
    (_LOGGED,),
    {("manifest",): Field(lambda value: isinstance(value, str))},
    _written_on,
    "object",
    may_refuse=True,
)
_PUBLISHED = {
    "schema": 4,
    "dvc_lock": "0" * 64,
    "outs": {"a": {"md5": "0" * 32, "size": 3, "stage": "filter", "sha256": None}},
    "records": {"filter": "0" * 64},
    "commit": "0" * 40,
    "key": None,
}
_PUBLISHED_KEYS: list[Keys] = [("schema",), ("dvc_lock",), ("outs",), ("records",), ("commit",)]
_OUTS = free(fixed({"md5": _MD5, "size": or_null(_COUNT), "stage": _TEXT}, {"sha256": _SHA256}))
RUN_MANIFEST = Document(
    "manifest of a run",
    f"manifests/{'0' * 64}.json",
    (_PUBLISHED,),
    {
        ("schema",): Field(lambda value: is_whole(value) and 1 <= value <= 4),
        ("dvc_lock",): Field(is_sha256),
        ("outs",): whole(_OUTS),
        ("outs", "a", "md5"): COVERED,
        ("outs", "a", "size"): COVERED,
        ("records",): Field(lambda value: value is MISSING or isinstance(value, dict)),
        ("commit",): Field(or_nothing(lambda value: isinstance(value, str))),
    },
    lambda path: _model(path, Manifest, _PUBLISHED_KEYS),
    "object",
    is_strict=True,
    may_refuse=True,
)
