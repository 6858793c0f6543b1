"""The result of a stage on another machine: the stage's lease states it, and whoever waits for it fetches it.

It names the files of the signed record by their digests. The record is the authority: a trusted key must have signed
it, it must state the run that was ordered, and only bytes that it names are taken from the bucket.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from evidence.audit.records import signers_of
from evidence.audit.trust import trusted_keys
from evidence.dvc.history import Locked, LockEntry, locked_stage
from evidence.dvc.lock import entries, outs_of
from evidence.dvc.stores import FOLDER, cache_of, run_cache_key
from evidence.record.environment import git
from evidence.record.identity import LOCKS
from evidence.record.ledger import SIGNED, enter_received
from evidence.record.materials import other_versions, unlocked_packages
from evidence.record.model_signature import MODEL_SIGNATURE, model_of
from evidence.record.reading import Record, read_record
from evidence.record.signing import TRUSTED, keys_named
from evidence.remote.guard import fetch_outs, read_verified
from evidence.remote.publication import opened, publication, send_evidence
from evidence.settings import SETTINGS, Form, validated
from ground.io import DataError, sha256_of, write_bytes
from ground.settings import read_yaml
from ground.text import printable

State = Literal["ran", "restored", "up to date"]
_SHOWN = 12
_RUN = re.compile(r"runs/[0-9a-f]{2}/[0-9a-f]{64}/[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Order:
    """The run that a machine was asked for: the stage with its inputs (``next_run``), and the commit of its code."""

    stage: Locked
    commit: str

    def accepted(self, root: Path, files: Mapping[str, bytes], outs: Mapping[str, str], is_new: bool) -> Record:
        """The record of the run, from its ``files`` by name: ``<sha256>.json``, ``.dsse`` and, of a model, ``.sig``.

        ``outs`` (md5 by path) are the outs that the machine states. Unless it ``is_new``, the run may be an earlier
        one, at any commit that ``root`` has. Raises ``DataError`` if no key that ``root`` trusts signed the record, or
        if it states a different stage, commit, command, input, parameter or out.
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


class Made(Form):
    """The state of the stage, md5 of its outs by path, and sha256 of files in the remote by key.

    ``runs`` holds the entry of DVC's run cache, ``evidence`` the lineage record with its signatures.
    """

    state: State
    outs: dict[str, str]
    runs: dict[str, str]
    evidence: dict[str, str]


def hand_back(root: Path, name: str, state: State, address: str) -> Made:
    """Send the record and run of a stage whose outs the remote at ``address`` has, and describe its result.

    Raises ``DataError`` if DVC has no entry of the run cache for it.
    """
    key = run_cache_key(entries(root)[name])
    if not (cache_of(root) / key).is_file():
        raise DataError(f"{name}: DVC keeps no run of it, so it cannot run on other machines; set `pool: here`")
    _, evidence = publication(root, [name])
    sent = {key: content for key, content in evidence.items() if key.startswith(("records/", "keys/"))}
    send_evidence(opened(root, address, FOLDER), sent)
    records = {key: sha256_of(content) for key, content in sent.items() if key.startswith("records/")}
    run = (cache_of(root) / key).read_bytes()
    opened(root, address).put(key, run)
    return Made(state=state, outs=outs_of(root, name), runs={key: sha256_of(run)}, evidence=records)


def receive(root: Path, order: Order, made: Made, address: str, allow: Callable[[list[str]], None]) -> None:
    """Put a worker's result into the cache, the run cache and the ledger of records of this folder.

    The signed record is verified before any out is read. ``allow`` gets the packages whose version the lock does not
    pin. Raises ``DataError`` as it and ``Order.accepted`` do, or if bytes in the remote are not as the worker stated.
    """
    name, store = order.stage.name, opened(root, address)
    form = re.compile(rf"records/{re.escape(name)}/[0-9a-f]{{64}}\.(json|dsse|sig)")
    if wrong := [
        *(key for key in made.evidence if not form.fullmatch(key)),
        *(k for k in made.runs if not _RUN.fullmatch(k)),
    ]:
        raise DataError(
            f"{name}: the worker named {wrong[0]!r}, which is neither a file of its record nor an entry of a run cache"
        )
    found = {key: read_verified(store, f"{FOLDER}/{key}", sha256) for key, sha256 in made.evidence.items()}
    files = {key.rpartition("/")[2]: content for key, content in found.items()}
    record = order.accepted(root, files, made.outs, made.state == "ran")
    allow(other_packages(root, record))
    runs = {key: read_verified(store, key, sha256) for key, sha256 in made.runs.items()}
    for key, content in runs.items():
        require_entry(record, key, content)
    fetch_outs(root, made.outs, records=[record])
    endings = {file.removeprefix(record.digest): content.decode() for file, content in files.items()}
    enter_received(name, record.digest, endings, root)  # first: DVC restores whatever the run cache has
    for key, content in runs.items():
        write_bytes(cache_of(root) / key, content)


def compare(root: Path, name: str, made: Made) -> None:
    """Raise ``DataError`` unless the lock here has the outs that the worker named."""
    outs = outs_of(root, name)
    if outs != made.outs:
        other = sorted(path for path in {*outs, *made.outs} if outs.get(path) != made.outs.get(path))
        theirs, ours = made.outs.get(other[0]), outs.get(other[0])
        raise DataError(f"{name}: the worker made {other[0]} with md5 {theirs}, but here it is {ours}")


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
    """The reason why a record without a trusted signer is refused, and the remedy."""
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
