"""The records as evidence: which records attest or contradict a stage, who signed them, and which were edited."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from evidence.audit.claims import comparable, differing
from evidence.audit.findings import Finding
from evidence.audit.trust import Keys, RefusedKeyError, trusted_keys
from evidence.audit.workspace import Workspace
from evidence.dvc.history import Locked
from evidence.record.environment import may_be_sound
from evidence.record.identity import LOCKS
from evidence.record.ledger import LEDGER, RECEIPT, RECORDS, SIGNED, file_of, head_of, read_ledger
from evidence.record.materials import entries_of, state_of
from evidence.record.model_signature import MODEL_SIGNATURE, model_of, verify_model
from evidence.record.reading import Record, attesting, known_records, read_records
from evidence.record.signing import opened
from evidence.record.statement import HEAD, PAYLOAD_TYPE, RECEIPT_TYPE, byproducts, is_about
from ground.io import DataError, parse_json, sha256_file, sha256_of

_READ: dict[tuple[str, str, frozenset[str]], tuple[list[str], dict[str, str]]] = {}
"""The verified statements by their sha256, their record and the trusted keys. Remotes have copies of both."""


def witness(stage: Locked, records: list[Record], workspace: Workspace, keys: Keys) -> Record | None:
    """The record that attests or contradicts the run in the lock, or ``None``.

    The best record agrees with the lock in everything. The next best has one of the lock's outs, has its inputs, or
    describes the files that are here: such a record contradicts the lock.
    """
    intact = [record for record in records if record.is_intact]
    if made := [record for record in intact if record.made(stage)]:
        return signed_first(made, keys)[0]

    def agreement(record: Record) -> tuple[int, int]:
        read = sum(record.inputs.get(path) == md5 for path, md5 in stage.deps.items())
        made = sum(record.outputs.get(path) == md5 for path, md5 in stage.outs.items())
        return made, read

    def is_here(record: Record) -> bool:
        claims = record.inputs | record.outputs
        found = {path: workspace.digest(path) for path in claims}
        return all(digest is not None and digest.md5 == claims[path] for path, digest in found.items())

    rivals = [r for r in intact if agreement(r)[0] or r.has_inputs_of(stage) or is_here(r)]
    return max(rivals, key=agreement, default=None)


def unreproducible(stage: Locked, records: list[Record]) -> Iterator[Finding]:
    """Runs with the inputs of the run in the lock but different outs, with the differences of their environments."""
    attested = attesting(records, stage)
    if attested is None:
        return
    for other in (record for record in records if record.has_inputs_of(stage)):
        differ = [path for path, md5 in stage.outs.items() if other.outputs.get(path) != md5]
        if not differ:
            continue
        both = [record.content for record in (attested, other)]
        environments = comparable(*(content["environment"] for content in both))
        journals = tuple(content.get("journals", {}) for content in both)
        facts = [*differing("environment", environments), *differing("journals", journals)]
        known = "; ".join(f"{key} {one!r} and {two!r}" for key, (one, two) in facts) or "nothing else differs"
        yield Finding(
            stage.name,
            f"not reproducible: records {attested.digest[:12]} and {other.digest[:12]} have the same inputs, but made "
            f"different {', '.join(differ)}; {known}",
            "note" if facts else "error",
        )


def tampered_journals(stage: Locked, records: list[Record], root: Path) -> Iterator[Finding]:
    """Journals that no longer begin with the bytes that a recorded run left, unless a later run began a new journal."""
    started_anew: set[str] = set()
    state = cache(state_of)  # runs that added no answer left the same state
    for record in records:  # newest first
        for path, use in record.content.get("journals", {}).items() if record.is_intact else ():
            after = use["after"]
            is_kept = after is not None and path not in started_anew and (root / path).exists()
            if is_kept and state(root / path, after["size"]) != after:
                used = use.get("used")
                intact = used is not None and entries_of(root / path, used["ranges"]) == used
                what = "entries that the run did not use" if intact else "answers"
                message = (
                    f"its first {after['size']:,} bytes are not those that the run of record {record.digest[:12]} "
                    f"left: {what} were changed after the run"
                )
                yield Finding(path, message, stages=(stage.name,), cause="journal")
            if not use["before"] or not use["before"]["size"]:
                started_anew.add(path)


def around(record: Record, stage: Locked) -> Iterator[Finding]:
    """Materials of the attesting run that no dependency covers: foreign modules, unpinned versions, edited files."""
    for name in record.content.get("unlisted_modules", {}):
        message = "the run loaded this module, which is neither in the code of the stage nor in the environment"
        yield Finding(name, message, stages=(stage.name,))
    for name, (installed, pinned) in record.content.get("unlocked_packages", {}).items():
        message = f"the run had {name} {installed or 'not installed'}, the lock pins {pinned}"
        yield Finding(LOCKS, message, "note", (stage.name,))
    for name, (stated, found) in record.content["environment"].get("edited_files", {}).items():
        if stated is not None:
            message = f"the run loaded this file of a package with sha256 {found}, its RECORD has {stated}"
            yield Finding(name, message, stages=(stage.name,))
        else:
            message = f"Python ran this file (sha256 {found}), which belongs to no installed package"
            yield Finding(name, message, "note" if may_be_sound(name) else "error", (stage.name,))


def entered_records(root: Path, stage: str) -> list[Record]:
    """The records of a stage that count as evidence, newest first: only records in the ledger, if it can be read."""
    records = read_records(root, stage)
    try:
        ledger = read_ledger(root)
    except DataError:  # ``tampered_records`` names the broken link
        return records
    if ledger is None:
        return records
    entered = {entry.record for entry in ledger if entry.stage == stage}
    return [record for record in records if record.path.stem in entered]


def record_of(root: Path, stage: Locked) -> Record | None:
    """The record of the run in the lock if it counts as evidence, a signed one first; ``None`` if there is none."""
    made = [record for record in entered_records(root, stage.name) if record.made(stage)]
    return next(iter(signed_first(made, trusted_keys(root))), None)


def records_of(root: Path, stage: str) -> list[Record]:
    """The known records of a stage, newest first; if two describe equal runs, signed records first."""
    found = known_records(root, stage)
    runs = {json.dumps([r.content.get("params"), r.inputs, r.outputs], sort_keys=True) for r in found}
    return signed_first(found, trusted_keys(root)) if len(runs) < len(found) else found


def signed_first(records: list[Record], keys: Keys) -> list[Record]:
    """The records that a trusted key signed, then the rest, which may be planted; each group keeps its order."""

    def is_signed(record: Record) -> bool:
        with suppress(DataError):
            return record.is_intact and bool(signers_of(record, keys))
        return False

    return sorted(records, key=is_signed, reverse=True) if len(records) > 1 else records


def tampered_records(root: Path, keys: Keys) -> Iterator[Finding]:
    """Edited records, and differences between the ledger, the records and their signed statements."""
    found: dict[tuple[str, str], Record] = {}
    heads: dict[tuple[str, str], str | None] = {}
    for folder in sorted(path for path in (root / RECORDS).glob("*") if path.is_dir()):
        for record in read_records(root, folder.name):
            where = record.path.relative_to(root).as_posix()
            if record.path.stem != record.digest:
                yield Finding(where, f"sha256 is {record.digest}, not the one in its name; it was edited")
            elif record.problem:
                yield Finding(where, record.problem.removeprefix(f"{where}: "))
            elif record.content["stage"] != folder.name:
                yield Finding(where, f"is a record of {record.content['stage']}; it was moved here")
            else:
                try:
                    heads[folder.name, record.digest] = verified(record, keys)[1]
                except RefusedKeyError:
                    pass  # ``check`` names the key
                except DataError as error:
                    yield Finding(RECORDS.as_posix(), str(error), stages=(folder.name,))
            found[folder.name, record.path.stem] = record
    try:
        ledger = read_ledger(root)
    except DataError as error:
        yield Finding.of(error)
        return
    if ledger is None:
        if stages := dict.fromkeys(name for name, _ in found):
            yield Finding(LEDGER.as_posix(), "is missing, but records of its time exist", stages=tuple(stages))
        return
    is_chained = True
    for entry in ledger:
        name, path = (entry.stage, entry.record), root / RECORDS / entry.stage / f"{entry.record}.json"
        place, file = path.relative_to(root), file_of(path)
        if entry.statement is not None and (signed := statement_digest(path)) != entry.statement:
            message = f"was {'edited' if signed else 'deleted'}; the ledger names this signed statement"
            yield Finding(place.with_suffix(SIGNED).as_posix(), message)
        if is_chained and heads.get(name) not in (None, entry.previous or head_of([])):
            message = "does not follow the line that the record's statement names; restore the earlier lines"
            yield Finding(f"{LEDGER}:{entry.number}", message, stages=(entry.stage,))
            is_chained = False  # the lines after it differ, too
        if name not in found and not (file.is_file() and sha256_file(file) == entry.record):
            yield Finding(place.as_posix(), "was deleted; the ledger names this record")
    entered = {(entry.stage, entry.record) for entry in ledger}
    for stage, digest in (name for name in found if name not in entered):
        yield Finding(f"{RECORDS}/{stage}/{digest}.json", "was not written by a run here; the ledger does not name it")


def signers_of(record: Record, keys: Keys) -> list[str]:
    """The names of the trusted keys that signed a record; empty if its statement is missing or signed by foreign keys.

    Raises ``DataError`` if the statement was edited, is about another record or does not say what the record says, if a
    key was not valid when the run ended, or if the signature of the model that it names was edited or deleted.
    """
    return verified(record, keys)[0]


def verified(record: Record, keys: Keys) -> tuple[list[str], str | None]:
    """The ``signers_of`` a record, and the ledger's head before it if the statement or a receipt names the head.

    Raises ``DataError`` as ``signers_of`` does.
    """
    path = record.path.with_suffix(SIGNED)
    if not path.is_file():
        return [], None
    content = path.read_bytes()
    pair = (sha256_of(content), record.digest, frozenset(keys))
    if pair not in _READ:
        _READ[pair] = _read(content, record, keys)
    signers, named = _READ[pair]
    if record.content:
        keys.refuse(signers, record.content["times"]["end"], f"{path.parent.name}/{path.name}")
    if (expected := named.get(MODEL_SIGNATURE)) is not None:
        _verify_model(record, expected, keys)
    return signers, _received(record, keys) or named.get(HEAD)


def _read(content: bytes, record: Record, keys: Keys) -> tuple[list[str], dict[str, str]]:
    """The signers of a statement, and the sha256 of the files that it names."""
    name = f"{record.path.parent.name}/{record.path.stem}{SIGNED}"
    kind, payload, signers = opened(content, keys, name)
    if kind != PAYLOAD_TYPE:
        raise DataError(f"{name}: is a signature of {kind}, not of a statement")
    statement = parse_json(payload, name)
    named = byproducts(statement)
    if named.get("record") != record.digest:
        raise DataError(f"{name}: is a statement about another record")
    if record.content and not is_about(statement, record.content, record.digest):
        raise DataError(f"{name}: does not say what its record says")
    return signers, named


def _received(record: Record, keys: Keys) -> str | None:
    """The head of this machine's ledger before a record of another machine, according to its receipt."""
    path = record.path.with_suffix(RECEIPT)
    if not path.is_file():
        return None
    kind, payload, signers = opened(path.read_bytes(), keys, path.name)
    receipt = parse_json(payload, path.name)
    is_receipt = signers and kind == RECEIPT_TYPE and isinstance(receipt, dict)
    return str(receipt.get(HEAD)) if is_receipt and receipt.get("record") == record.digest else None


def _verify_model(record: Record, expected: str, keys: Keys) -> None:
    """Verify the signature of the model that a run made; ``expected`` is its sha256 in the signed statement."""
    path, model = record.path.with_suffix(MODEL_SIGNATURE), model_of(record.content)
    name = f"{path.parent.name}/{path.name}"
    if not path.is_file() or model is None:
        raise DataError(f"{name}: the signature of the model was deleted; the signed statement names it")
    content = path.read_bytes()
    if sha256_of(content) != expected:
        raise DataError(f"{name}: the signature of the model was edited; the signed statement names a different one")
    verify_model(content, *model, keys, name)


def statement_digest(record: Path) -> str | None:
    """The sha256 of the statement about the record in a file; ``None`` if it has none."""
    path = file_of(record.with_suffix(SIGNED))
    return sha256_file(path) if path.is_file() else None
