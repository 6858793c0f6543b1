"""The lineage record of a stage run: digests of everything read and written, the code, the environment and the times.

It is written to ``RECORDS/<stage>/<sha256 of the file>.json`` after the stage succeeds, with a signed
statement (``.dsse``) and, for a model, its signature (``.sig``), and entered in the ledger. The name reveals any later
edit. It is not a DVC out because it contains times. A stage that is started a second time in the same folder, by DVC or
by hand, says who runs it. A stage that runs any program has the command ``python -m evidence record -- COMMAND``.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence.dvc.pipeline import MAIN, Stage, params_of, read_pipelines
from evidence.record.environment import (
    describe_actor,
    describe_commit,
    describe_environment,
    describe_tree,
    peak_rss_bytes,
)
from evidence.record.identity import LOCKS, WRAPPER, code_of, is_code
from evidence.record.ledger import SIGNED, enter
from evidence.record.materials import Journals, unlisted_modules, unlocked_packages
from evidence.record.model_signature import MODEL_SIGNATURE, model_of, sign_model
from evidence.record.processes import REPORT_AS, REPORTS, add_reports, report_as
from evidence.record.schema import SCHEMA
from evidence.record.signing import sign
from evidence.record.statement import HEAD, PAYLOAD_TYPE, statement_of
from evidence.settings import PREFIX, STATE
from ground.hashing import digest_path
from ground.io import DataError, TransientError, sha256_file, sha256_of, text_digest
from ground.recording import NOTES, REPORTER, note

RECORDING = f"{PREFIX}RECORDING"
"""Set while a stage is recorded, so that the processes it starts do not record it again."""
_DVC_STAGE = "DVC_STAGE"
"""The stage that DVC runs, in the environment of its command."""


@contextmanager
def recorded(cmd: str, stage: Stage | None = None) -> Iterator[None]:
    """Record the work of the ``with`` block under the stage of dvc.yaml that has this command, or under ``stage``.

    With ``stage``, another program does the work: the modules of this process are not part of the record.
    Paths are relative to the current folder, as in dvc.yaml. Work that raises leaves no record. A command that dvc.yaml
    does not list runs unrecorded, with a note on stderr. If a stage has several processes, only the first records, and
    of several machines only the first (``NODE_RANK`` 0).
    Raises ``DataError`` if an input is missing or the stage did not write a declared out, and ``TransientError`` if
    another process runs the same command in this folder.
    """
    if RECORDING in os.environ or any(int(os.environ.get(name) or 0) > 0 for name in ("RANK", "NODE_RANK")):
        report_as(f"rank {os.environ.get('RANK') or 0}")
        yield
        return
    stages = read_pipelines() if MAIN.exists() else {}
    found = stage or next((stage for stage in stages.values() if stage.cmd == cmd), None)
    if found is None:
        print(f"{cmd}: not listed in a dvc.yaml here; no lineage record is written", file=sys.stderr)
        yield
        return
    with only_one(cmd):
        yield from _recorded(found, is_own=stage is None)


def _recorded(stage: Stage, is_own: bool) -> Iterator[None]:
    record, journals = _before(stage), Journals()
    start, clock = datetime.now(UTC), time.monotonic()
    folder = tempfile.TemporaryDirectory(prefix="stage-")
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as notes, folder as reports, journals:
        told = {RECORDING: stage.cmd, NOTES: notes.name, REPORTS: reports, REPORTER: REPORT_AS}
        os.environ |= told
        try:
            yield
        finally:
            for name in told:
                del os.environ[name]
        record["notes"] = {name: value for line in notes for name, value in json.loads(line).items()}
        record["environment"] = describe_environment()
        record["unlisted_modules"] = unlisted_modules(record["code"]) if is_own else {}
        record["unlocked_packages"] = unlocked_packages(record["environment"]["packages"], Path(LOCKS))
        add_reports(Path(reports), record, journals, Path(LOCKS))
    record["times"] = {
        "start": start.isoformat(timespec="seconds"),
        "end": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 3),
        "peak_rss_bytes": peak_rss_bytes(),
    }
    record["outputs"] = _digests(stage, stage.all_outs)
    record["actor"], record["journals"] = describe_actor(), journals.states()
    text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    digest = sha256_of(text.encode())
    enter(stage.name, digest, lambda head: {".json": text} | _signatures(record, digest, head))


def _signatures(record: dict[str, Any], digest: str, head: str) -> dict[str, str]:
    """The signed statement about a record and the signature of the model that the run made, by their endings.

    ``head`` is the head of the ledger. Without a usable key the run is not lost.
    """
    found: dict[str, str] = {}
    try:
        if (model := model_of(record)) is not None:
            found[MODEL_SIGNATURE] = _line(sign_model(*model))
        others = {HEAD: head} | {ending: sha256_of(text.encode()) for ending, text in found.items()}
        statement = statement_of(record, digest, others)
        found[SIGNED] = _line(sign(json.dumps(statement, sort_keys=True).encode(), PAYLOAD_TYPE))
    except DataError as error:
        print(f"the record of {record['stage']} is not signed: {error}", file=sys.stderr)
    return found


def _line(envelope: dict[str, Any]) -> str:
    return json.dumps(envelope, sort_keys=True) + "\n"


def _before(stage: Stage) -> dict[str, Any]:
    """The part of the record that must be taken before the work starts."""
    code = code_of(stage.cmd)
    return {
        "schema": SCHEMA,
        "stage": stage.name,
        "cmd": stage.cmd,
        "inputs": _digests(stage, [path for path in stage.deps if not is_code(path)]),
        "params": params_of(Path(), stage),
        "code": _digests(stage, code),
        "git": describe_commit([*(code or stage.deps), LOCKS, stage.file, stage.params_file]),
        "tree": describe_tree(),
        "rooms": _digests(stage, [path for path in stage.deps if is_code(path)]),
    }


def _digests(stage: Stage, paths: Iterable[str]) -> dict[str, Any]:
    try:
        return {path: digest_path(Path(path)).as_json() for path in paths}
    except FileNotFoundError as error:
        raise DataError(
            f"stage {stage.name}: {error.filename} does not exist although dvc.yaml names it; `dvc repro {stage.name}` "
            "makes the inputs of the stage, and the stage must write every out that it declares"
        ) from error


RUNNING = STATE / "running"
"""The locks, one file per command, named by its sha256. A file stays: its holder may have just opened it."""


@contextmanager
def only_one(cmd: str) -> Iterator[None]:
    """Hold the lock of a stage's command in the current folder; raises ``TransientError`` if another process has it.

    On a file system without locks the block runs without one.
    """
    path = RUNNING / f"{text_digest(cmd)}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "it has just started"
            raise TransientError(f"`{cmd}` already runs in this folder ({holder}); wait for it or end it") from None
        except OSError:
            pass  # no locks
        handle.truncate(0)
        handle.write(f"PID {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        handle.flush()
        try:
            yield
        finally:
            handle.truncate(0)


def record_command(words: Sequence[str]) -> None:
    """Run a command and record it under its stage of dvc.yaml, with the sha256 of the program.

    A command that fails leaves no record, and ``SystemExit`` with its exit status is raised. Raises ``DataError`` if
    there is no such program, and as ``recorded`` does.
    """
    if (program := shutil.which(words[0])) is None:
        raise DataError(f"{words[0]}: no such program; install it, or correct the command in {MAIN}")
    with recorded(WRAPPER + shlex.join(words), _stage_of(words)):
        note("program", {"name": Path(program).name, "sha256": sha256_file(Path(program).resolve())})
        if status := subprocess.run([program, *words[1:]], check=False).returncode:
            raise SystemExit(status if status > 0 else 128 - status)


def _stage_of(words: Sequence[str]) -> Stage | None:
    """The stage whose command is this one: the stage that DVC says it runs, or the stage with the same words."""
    stages = read_pipelines() if MAIN.exists() else {}
    if (running := stages.get(os.environ.get(_DVC_STAGE, ""))) and running.cmd.startswith(WRAPPER):
        return running
    return next((each for each in stages.values() if _words(each.cmd) == [*WRAPPER.split(), *words]), None)


def _words(cmd: str) -> list[str]:
    """The words of a command; none if it has an open quotation, as in a comment with an apostrophe."""
    with suppress(ValueError):
        return shlex.split(cmd)
    return []
