"""The records of runs as found on this machine: in the project and in remotes. ``check`` verifies them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.dvc.history import Locked
from evidence.dvc.stores import EVIDENCE, FOLDER, stores
from evidence.record.ledger import RECORDS
from evidence.record.schema import StageRecord
from evidence.settings import validated
from ground.io import DataError, parse_json, sha256_of

PUBLISHED = f"{FOLDER}/records"
"""The folder of records in a remote."""
_KNOWN: dict[str, dict[str, Any]] = {}
"""The contents of the records that were read last, by their sha256: a project and its remotes share records."""
_MOST_KNOWN = 200


@dataclass(frozen=True, slots=True)
class Record:
    """A lineage record as found on disk; ``content`` is empty, and ``problem`` says why, if the file is not one."""

    path: Path
    digest: str
    content: dict[str, Any]
    problem: str = ""

    @property
    def is_intact(self) -> bool:
        """True if the content has the digest in the file's name."""
        return bool(self.content) and self.path.stem == self.digest

    @property
    def inputs(self) -> dict[str, str]:
        """The md5 of everything that the run read and that dvc.yaml lists."""
        return self._md5s("inputs", "rooms")

    @property
    def outputs(self) -> dict[str, str]:
        """The md5 of everything that the run made."""
        return self._md5s("outputs")

    def has_inputs_of(self, stage: Locked) -> bool:
        """True if the record is intact and the run had the command, dependencies and parameters in the lock."""
        if not self.is_intact or self.content["cmd"] != stage.cmd:
            return False
        return self.inputs == stage.deps and self.content["params"] == stage.params

    def made(self, stage: Locked) -> bool:
        """True if the run also made the outs in the lock."""
        return self.has_inputs_of(stage) and self.outputs == stage.outs

    def _md5s(self, *kinds: str) -> dict[str, str]:
        return {path: entry["md5"] for kind in kinds for path, entry in self.content.get(kind, {}).items()}


def read_records(root: Path, stage: str) -> list[Record]:
    """The records of a stage in the project, newest first."""
    return _newest_first(read_record(path, root) for path in sorted((root / RECORDS / stage).glob("[!.]*.json")))


def known_records(root: Path, stage: str, about: Iterable[str] = ()) -> list[Record]:
    """The records of a stage, newest first: the project's, and the intact records in ``record_folders``.

    So a restored clone knows how its files were made. ``check`` verifies what remotes say. With ``about``, only records
    whose name or content has one of these texts.
    """
    texts, found = list(about), dict[str, Record]()
    for folder in (root / RECORDS, *record_folders(root)):
        for path in sorted((folder / stage).glob("[!.]*.json")):
            if path.stem in found or (texts and not _names_any(path, texts)):
                continue
            record = read_record(path, root)
            if record.is_intact or folder == root / RECORDS:
                found[path.stem] = record
    return _newest_first(found.values())


def _names_any(path: Path, texts: list[str]) -> bool:
    content = path.read_bytes()
    return any(text in path.name or text.encode() in content for text in texts)


def _newest_first(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: str(record.content.get("times", {}).get("start")), reverse=True)


def attesting(records: Iterable[Record], stage: Locked) -> Record | None:
    """The first record whose run made the outs of a stage in the lock."""
    return next((record for record in records if record.made(stage)), None)


def record_folders(root: Path) -> list[Path]:
    """The folders of records in remotes on this machine, and in fetched copies of other remotes."""
    remotes = [store.folder for store in stores(root) if store.folder is not None and store.name != "cache"]
    return [folder / PUBLISHED for folder in (*remotes, *sorted((root / EVIDENCE).glob("*")))]


def read_record(path: Path, root: Path) -> Record:
    """The record in a file; a record with a wrong form has no content."""
    raw = path.read_bytes()
    digest = sha256_of(raw)
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    try:
        if (content := _KNOWN.get(digest)) is None:
            content = parse_json(raw, name)
            validated(StageRecord, content, name)
            _KNOWN[digest] = content
            if len(_KNOWN) > _MOST_KNOWN:
                _KNOWN.pop(next(iter(_KNOWN)), None)
    except DataError as error:
        return Record(path, digest, {}, str(error))
    return Record(path, digest, content)
