"""The run of another machine: its signed record is verified before anything else that the machine made is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evidence.audit.records import signers_of
from evidence.audit.trust import trusted_keys
from evidence.dvc.history import Locked, LockEntry, locked_stage
from evidence.dvc.stores import run_cache_key
from evidence.record.environment import git
from evidence.record.identity import LOCKS
from evidence.record.ledger import SIGNED
from evidence.record.materials import other_versions, unlocked_packages
from evidence.record.model_signature import MODEL_SIGNATURE, model_of
from evidence.record.reading import Record, read_record
from evidence.record.signing import TRUSTED, keys_named
from evidence.settings import SETTINGS, validated
from ground.io import DataError, write_bytes
from ground.settings import read_yaml
from ground.text import printable

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Order:
    """The run that a machine was asked for: the stage with its inputs (``next_run``), and the commit of its code."""

    stage: Locked
    commit: str

    def accepted(self, root: Path, files: Mapping[str, bytes], outs: Mapping[str, str], is_new: bool) -> Record:
        """The record of the run, from its ``files`` by name: ``<sha256>.json``, ``.dsse`` and, of a model, ``.sig``.

        ``outs`` (md5 by path) is what the machine says it made. Unless it ``is_new``, the run may be an earlier one, at
        any commit that ``root`` has. Raises ``DataError`` if no key that ``root`` trusts signed the record, or if it
        states a different stage, commit, command, input, parameter or out.
        """
        name = self.stage.name
        with TemporaryDirectory() as folder:
            record, keys = _written(Path(folder, name), files, name), trusted_keys(root)
            try:
                signers = signers_of(record, keys)
            except DataError as error:
                raise DataError(f"{name}: nothing of the worker's result is taken: {error}") from error
        if not signers:
            raise DataError(f"{name}: {_untrusted(record, files)}")
        endings = {".json", SIGNED} | ({MODEL_SIGNATURE} if model_of(record.content) is not None else set())
        if set(files) != {f"{record.digest}{ending}" for ending in endings}:
            raise DataError(f"{name}: the worker handed back {', '.join(sorted(files))}, not the files of one record")
        stated = Locked("", record.content["cmd"], record.inputs, record.outputs, record.content["params"])
        _require_equal(name, _ordered(stated), _ordered(self.stage), "in the order")
        _require_equal(name, record.outputs, outs, "in what the worker handed back")
        commit = record.content["git"]["commit"]
        known = not is_new and git("cat-file", "-e", f"{commit}^{{commit}}", root=root) is not None
        if commit != self.commit and not known:
            _require_equal(name, {"the commit": commit}, {"the commit": self.commit}, "in the order")
        return record


def other_packages(root: Path, record: Record) -> list[str]:
    """The packages of a run, and of its processes, whose version is not the one in the lock files of ``root``."""
    found = unlocked_packages(record.content["environment"].get("packages", {}), root / LOCKS)
    inner = {name: pair for name, pair in record.content["unlocked_packages"].items() if " in " in name}
    return other_versions({**found, **inner})


def require_entry(record: Record, key: str, content: bytes) -> None:
    """Raise ``DataError`` unless ``content`` is the entry of DVC's run cache for the run of a record, named ``key``."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "run.yaml")
        file.write_bytes(content)
        entry = read_yaml(file)
    run = locked_stage(str(record.content["stage"]), validated(LockEntry, entry, key), key)
    if run.flags or not record.made(run) or run_cache_key(entry) != key:
        raise DataError(f"{run.name}: {key}: this entry of the run cache is not about the run in the signed record")


def _written(folder: Path, files: Mapping[str, bytes], name: str) -> Record:
    """The record in ``files``, which this writes to a folder next to its signatures."""
    records = [file for file in files if file.endswith(".json")]
    if len(records) != 1:
        raise DataError(f"{name}: the worker handed back {len(records)} records of its run, so nothing of it is taken")
    for file, content in files.items():
        write_bytes(folder / file, content)
    record = read_record(folder / records[0], folder)
    if record.problem or not record.is_intact or record.content["stage"] != name:
        of = record.problem or f"has sha256 {record.digest[:_SHOWN]} and is of stage {record.content['stage']}"
        raise DataError(f"{name}: the worker's record {records[0]}: {of}; nothing of its result is taken")
    return record


def _untrusted(record: Record, files: Mapping[str, bytes]) -> str:
    """Why a record without a trusted signer is refused, and the remedy."""
    signed = files.get(f"{record.digest}{SIGNED}")
    if signed is None:
        return "the worker's record is not signed, so nothing of its result is taken; correct the key of the worker"
    keys = ", ".join(printable(key)[:_SHOWN] for key in keys_named(signed, record.path.name))
    actor = record.content.get("actor") or {}
    return (
        f"key {keys or 'none'}, which is not trusted here, signed the worker's record (it says: by "
        f"{printable(str(actor.get('user')))} on {printable(str(actor.get('host')))}), so nothing of its result is "
        f"taken. If the key is really the worker's, commit its public half to {TRUSTED.as_posix()}/ "
        f"({SETTINGS.remedies.trust}), push, and run again"
    )


def _ordered(stage: Locked) -> dict[str, Any]:
    params = {f"parameter {key}": value for key, value in stage.params.items()}
    return {"its command": stage.cmd, **stage.deps, **params, **dict.fromkeys(stage.outs, "an out")}


def _require_equal(name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any], where: str) -> None:
    """Raise ``DataError`` with the first value of a signed record that differs."""
    for key in sorted({*theirs, *ours}):
        one, other = theirs.get(key), ours.get(key)
        if one != other:
            raise DataError(
                f"{name}: {key} is {one!r:.80} in the worker's signed record and {other!r:.80} {where}, so nothing of "
                "its result is taken; run the stage again"
            )
