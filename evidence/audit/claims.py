"""Every claim of the lock about a stage, compared with the file as it is now and with the record of the run.

Three witnesses name each command, parameter, input and output: the project now, the lock and the record. If one differs
from the other two, that one was changed. If the project and the lock agree against the record, both were changed after
the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from evidence.audit.findings import Finding, Level, listed
from evidence.audit.workspace import LINK, NO_COMMIT, Workspace
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.pipeline import MAIN, Stage, value_at
from evidence.dvc.stores import listing_of
from evidence.record.reading import Record
from evidence.settings import SETTINGS
from ground.hashing import Digest

RECORDER = __name__.partition(".")[0]
"""The folder of the recorder, which is part of the code of every stage made by ``@stage``."""


class _Nothing(str):
    """A word that is unequal to every text, because a value can be the same word."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Nothing)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, _Nothing)


NONE = _Nothing("nothing")
"""The value of a key that a witness does not have."""
_LONGEST = 60


class Claims:
    """The claims about one stage; ``record`` is its witness, or ``None`` if no record is about this run."""

    def __init__(
        self, workspace: Workspace, stores: list[Path], stage: Locked, defined: Stage | None, record: Record | None
    ) -> None:
        self.workspace, self.stores = workspace, stores
        self.stage, self.defined, self.record = stage, defined, record
        # Older code made the shipped data: only a new run can tell if today's code makes the same bytes.
        self.made_once = defined is not None and defined.file != MAIN.as_posix()

    def findings(self) -> Iterator[Finding]:
        """Every difference between the witnesses."""
        if self.stage.cmd and self.defined is None:
            yield self._finding(self.stage.file, f"has stage {self.stage.name}, which dvc.yaml does not define")
            return
        sources: list[Locked | Stage] = [self.stage, *([self.defined] if self.defined else [])]
        for each in sources:
            for flag in each.flags:
                yield self._finding(each.file, f"has {flag}: DVC acts on it, and no record confirms it", "note")
        if self.defined is not None:
            yield from self._definition(self.defined)
            yield from self._params(self.defined)
        # The dependencies of data.dvc are copies: their digests are compared elsewhere instead of their bytes.
        for path, md5 in (self.stage.deps if self.stage.cmd else {}).items():
            yield from self._path(path, md5, "input")
        for path, md5 in self.stage.outs.items():
            yield from self._path(path, md5, "output")
        yield from self._sha256()

    def changed_code(self) -> list[str]:
        """The files of code that are missing or differ from the record."""
        code = self.record.content["code"] if self.record else {}
        now = {path: self.workspace.digest(path) for path in code}
        return [path for path, entry in code.items() if (found := now[path]) is None or found.md5 != entry["md5"]]

    def _definition(self, defined: Stage) -> Iterator[Finding]:
        if self.made_once:
            yield from self._older_code(defined)
            return
        command = self.record.content["cmd"] if self.record else self.stage.cmd
        if not defined.cmd == self.stage.cmd == command:
            values = f"{defined.file} has {defined.cmd!r}"
            values += f", the record {command!r}" if self.record else ""
            yield self._finding(self.stage.file, f"{self.stage.name} ran {self.stage.cmd!r}; {values}")
        if names := ", ".join(sorted(self.stage.params.keys() - {*defined.params})):  # ``_params`` names added keys
            yield self._finding(self.stage.file, f"{self.stage.name}: params differ from {defined.file}: {names}")
        recorded = (self.record.inputs, self.record.outputs) if self.record else (self.stage.deps, self.stage.outs)
        sides = ("deps", defined.deps, self.stage.deps), ("outs", defined.all_outs, self.stage.outs)
        for (kind, stated, locked), known in zip(sides, recorded, strict=True):
            if names := _only_in_one(stated, locked):
                yield self._finding(self.stage.file, f"{self.stage.name}: {kind} differ from {defined.file}: {names}")
            elif names := _only_in_one(known, locked):
                yield self._finding(defined.file, f"{kind} of {self.stage.name} differ from its record: {names}")

    def _older_code(self, defined: Stage) -> Iterator[Finding]:
        if names := _only_in_one(defined.all_outs, self.stage.outs):
            yield self._finding(self.stage.file, f"{self.stage.name}: outs differ from {defined.file}: {names}")
        if defined.cmd != self.stage.cmd or set(defined.deps) != set(self.stage.deps):
            message = f"stages ran with commands or code that {defined.file} no longer names"
            yield self._finding(self.stage.file, message, "note")

    def _params(self, defined: Stage) -> Iterator[Finding]:
        recorded = self.record.content["params"] if self.record else {}
        for key in dict.fromkeys([*self.stage.params, *defined.params, *recorded]):
            now = value_at(self.workspace.params(defined.params_file), key, NONE)
            locked = self.stage.params.get(key, NONE)
            values = (now, locked, recorded.get(key, NONE) if self.record else locked)
            for name, (is_now, in_lock, in_record) in differing(key, values):
                where, message = self._judge(f"{name} is", is_now, in_lock, in_record, defined.params_file)
                cause = f"{name} {json.dumps(is_now, default=str)}"
                yield self._finding(where, message, cause=cause, about=f"{defined.params_file}:{name}")

    def _path(self, path: str, locked: str, kind: str) -> Iterator[Finding]:
        """Compare one input or output; for a folder, name the files that differ."""
        for link in self.workspace.links(path):
            yield self._finding(link, LINK.format(self.workspace.target(link)), cause="link")
        for name in self.workspace.unread(path) if kind == "output" else ():
            yield self._finding(name, "is in an output, but no digest covers it; delete it", cause="unread")
        where, now = self._now(path)
        recorded = (self.record.inputs | self.record.outputs).get(path) if self.record else None
        if self.made_once and kind == "input" and self.defined and path not in self.defined.deps:
            return  # older code, which the comparison with dvc.yaml names
        if now is None:
            yield from self._missing(path)
            return
        if now.md5 == locked == (recorded or locked):
            yield from self._size_and_mode(path, now)
            return
        level: Level = "error"
        if self.made_once and kind == "input" and not path.startswith(f"{history.EARLIER}/"):
            level = "note"
        place, message = self._judge("md5 is", now.md5, locked, recorded or locked, where)
        rank = 0 if now.md5 == locked else 1
        is_remedied = bool(rank) and level == "error"
        if place != where:
            yield self._finding(place, f"{path}: {message}", level, cause=f"{path} {locked}", about=path)
            return
        if now.md5 == locked and kind == "output":
            message += ", or a run with the same inputs that did not give the same bytes"
        files = self._files(path, locked if now.md5 != locked else str(recorded))
        if not (files and now.is_folder):
            remedy = self._remedy(where) if is_remedied else ""
            yield self._finding(where, message + remedy, level, cause="bytes", rank=rank)
            return
        then = f"{history.MAIN_LOCK} and the record of the run list" if rank else "the record of the run has"
        for name in sorted(now.files.keys() | files):
            if (digest := now.files.get(name)) is not None and digest.md5 == files.get(name):
                continue
            remedy = self._remedy(where, f"{where}/{name}", digest is not None) if is_remedied else ""
            if digest is None:
                message = f"is missing; {then} it{remedy}"
            else:
                known = f"has {files[name]}" if name in files else "does not list it"
                message = f"md5 is {digest.md5}, the listing of {path} {known}"
                message += remedy if rank else f"; {history.MAIN_LOCK} was changed with it"
            yield self._finding(f"{where}/{name}", message, level, cause="bytes", rank=rank)

    def _judge(self, what: str, now: Any, locked: Any, recorded: Any, where: str) -> tuple[str, str]:
        """The file of the witness that was changed, and a message with every value that differs."""
        is_now, in_lock, in_record = _short(now), _short(locked), _short(recorded)
        if now == recorded:
            file = self.stage.file
            return file, f"{what} {in_lock} in {file}; {where} and the record have {is_now}; restore {file} from git"
        if now == locked:
            return where, (
                f"{what} {is_now} here and in {self.stage.file}, the record of the run has {in_record}: changed after "
                "the run"
            )
        message = f"{what} {is_now}, {self.stage.file} has {in_lock}"
        if locked != recorded:
            message += f", the record of the run has {in_record}"
        return where, message

    def _remedy(self, path: str, file: str = "", is_here: bool = True) -> str:
        """The remedy that restores the bytes in the lock; ``file`` is the file of a folder at ``path``."""
        if not self.workspace.is_tracked(path):
            return f"; to restore it, {'delete it and ' * is_here}run `dvc checkout {path}`"
        if (since := self.workspace.since(file or path)) != NO_COMMIT:
            return f", in git {since}; run the pipeline again"
        return "; restore it from git, or run the pipeline again"

    def _now(self, path: str) -> tuple[str, Digest | None]:
        """The place and digest of a path; an earlier out that is not here is looked up among the shipped files."""
        found = self.workspace.digest(path)
        if found is None and path.startswith(f"{history.EARLIER}/"):
            shipped = history.as_shipped(path)
            return shipped, self.workspace.digest(shipped)
        return path, found

    def _missing(self, path: str) -> Iterator[Finding]:
        if path.startswith(f"{history.EARLIER}/"):
            message = f"outs that are not shipped are missing; {SETTINGS.remedies.shipped}"
            yield self._finding(history.EARLIER, message, "note")
        else:
            yield self._finding(path, "is missing; get it with `dvc pull` or `dvc checkout`", cause="missing")

    def _size_and_mode(self, path: str, now: Digest) -> Iterator[Finding]:
        """Compare a path whose bytes are correct with its sizes and its permission to execute in the lock."""
        stated, nfiles = self.stage.about(path), len(now.files) if now.is_folder else None
        for what, claim, real in (("size", stated.size, now.size), ("nfiles", stated.nfiles, nfiles)):
            if claim is not None and claim != real:
                message = f"{path}: {what} is {claim}, the files have {real}"
                yield self._finding(self.stage.file, message, about=path)
        if stated.isexec and (now.is_folder or not self.workspace.is_executable(path)):
            message = f"{path}: isexec is true, but the {'folder' if now.is_folder else 'file'} is not executable"
            yield self._finding(self.stage.file, message, about=path)

    def _sha256(self) -> Iterator[Finding]:
        """Files that have the md5 in the record but different bytes."""
        content = self.record.content if self.record else {}
        for kind in ("inputs", "rooms", "code", "outputs"):
            for path, entry in content.get(kind, {}).items():
                found = self.workspace.digest(path)
                if found is not None and found.md5 == entry["md5"] and found.sha256 != entry["sha256"]:
                    message = f"sha256 is {found.sha256}, the run's record has {entry['sha256']}, with the same md5"
                    yield self._finding(path, message, cause="sha256")

    def code(self, changed: list[str]) -> Iterator[Finding]:
        """The ``changed`` code that no dependency covers; a newer recorder in git does not change a result."""
        changed = [path for path in changed if not any(history.overlap(path, d) for d in self.stage.deps)]
        newer = [path for path in changed if path.startswith(f"{RECORDER}/") and self.workspace.is_committed(path)]
        if newer:
            message = f"later commits changed files of the recorder since the run: {listed(newer)}"
            yield self._finding(RECORDER, message, "note")
        for path in (path for path in changed if path not in newer):
            since = self.workspace.since(path)
            message = f"is not the code that the run recorded ({since}), and no dependency covers it; "
            message += "restore it, or list it in dvc.yaml and run the stage again"
            yield self._finding(path, message, "note" if self.made_once else "error")

    def _files(self, path: str, md5: str) -> dict[str, str]:
        """The md5 of each file in the folder with this digest: from a store or from the record."""
        if files := listing_of(self.stores, md5):
            return files
        content = self.record.content if self.record else {}
        for kind in ("inputs", "rooms", "outputs"):
            entry = content.get(kind, {}).get(path, {})
            if entry.get("md5") == md5:
                return {name: file["md5"] for name, file in (entry.get("files") or {}).items()}
        return {}

    def _finding(self, where: str, message: str, level: Level = "error", **more: Any) -> Finding:
        return Finding(where, message, level, (self.stage.name,), **more)


def differing(key: str, values: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The dotted keys below ``key`` with different values, and these values."""
    if all(isinstance(value, Mapping) for value in values):
        for name in dict.fromkeys(name for value in values for name in value):
            yield from differing(f"{key}.{name}" if key else name, tuple(value.get(name, NONE) for value in values))
    elif any(value != values[0] or isinstance(value, bool) != isinstance(values[0], bool) for value in values):
        yield key, values


def quoted(value: str) -> str:
    """The text unchanged, or in quotation marks if it is the word of ``NONE``."""
    return json.dumps(value) if value == str(NONE) else value


def comparable(*given: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Two environments, with digests only of packages that have a digest and the same version in both."""
    wheels, versions = ([each.get(key, {}) for each in given] for key in ("wheels", "packages"))
    shared = [n for n in wheels[0] if n in wheels[1] and versions[0].get(n) == versions[1].get(n)]
    kept = ({name: each[name] for name in shared} for each in wheels)
    edited = (each.get("edited_files", {}) for each in given)
    return tuple(e | {"wheels": w, "edited_files": f} for e, w, f in zip(map(dict, given), kept, edited, strict=True))


def _only_in_one(paths: Iterable[str], others: Iterable[str]) -> str:
    return ", ".join(sorted({*paths} ^ {*others}))


def _short(value: Any) -> str:
    text = quoted(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
