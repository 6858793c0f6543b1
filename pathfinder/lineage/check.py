"""Re-hash every file behind a result and report each difference. Time stamps and caches are not trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pathfinder.core.io import DataError
from pathfinder.core.settings import read_yaml
from pathfinder.lineage import history
from pathfinder.lineage.graph import RAW, read_manifest
from pathfinder.lineage.history import Locked, Record
from pathfinder.provenance.hashing import Digest, digest_path
from pathfinder.provenance.pipeline import MAIN, read_pipelines, value_at
from pathfinder.provenance.record import RECORDS

Level = Literal["error", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference (``error``), or a claim that cannot be verified on this machine (``note``)."""

    where: str
    message: str
    level: Level = "error"

    def __str__(self) -> str:
        return f"{self.level}: {self.where}: {self.message}"


def check(path: str | Path | None = None, root: Path = Path(".")) -> list[Finding]:
    """Check ``path`` and everything it depends on, or all of dvc.lock.

    Compares the workspace, the DVC cache and local remotes with the md5 in dvc.lock and the ``.dvc`` files; dvc.lock
    with itself, dvc.yaml, params.yaml and the records; records with their names; source files with the sha256 in the
    manifest. Raises ``DataError`` if there is no dvc.lock or it does not contain ``path``.
    """
    stages = history.read_lock(root)
    chosen = stages if path is None else history.ancestors(stages, Path(path).as_posix())
    checker = _Checker(root, stages)
    findings = [finding for stage in chosen.values() for finding in checker.stage(stage)]
    if any(RAW in stage.outs for stage in chosen.values()):
        findings += checker.sources()
    return list(dict.fromkeys(findings))


class _Checker:
    def __init__(self, root: Path, stages: dict[str, Locked]) -> None:
        self.root, self.stages = root, stages
        self.digest = cache(self._digest)  # every path is read once
        self.damage = cache(self._damage)
        self.stores = list(history.object_stores(root))
        self.pipeline = read_pipelines(root)
        self.params = {file: read_yaml(root / file) for file in {s.params_file for s in self.pipeline.values()}}

    def stage(self, stage: Locked) -> Iterator[Finding]:
        records = history.read_records(self.root, stage.name)
        made = [record for record in records if record.made(stage)]
        if stage.cmd:
            yield from self._against_definition(stage)
            yield from self._against_records(stage, records, made)
        files = _files_of(made[0]) if made else {}
        # The dependencies of data.dvc are copies: their digests are compared below instead of their bytes.
        for path, md5 in [*(stage.deps if stage.cmd else {}).items(), *stage.outs.items()]:
            yield from self._against_bytes(stage, path, md5, files.get(path, {}))
        yield from self._against_producers(stage)
        for path, md5 in stage.outs.items():
            for store in self.stores:
                yield from self.damage(store, md5, path)

    def sources(self) -> Iterator[Finding]:
        """Compare every source file, and the origin of shipped ones, with the manifest."""
        try:
            manifest = read_manifest(self.root)
        except DataError as error:
            yield Finding(RAW, str(error))
            return
        if not manifest:
            yield Finding(RAW, "manifest.json is missing; get it with `dvc pull` or `dvc repro`")
        for name, source in manifest.items():
            folders = [f"{RAW}/{name}", *([source["location"]] if source["kind"] == "shipped" else [])]
            for path, entry in ((f"{folder}/{file}", e) for folder in folders for file, e in source["files"].items()):
                found = self.digest(path)
                if found is None:
                    yield Finding(path, "is missing, but the manifest lists it")
                elif found.sha256 != entry["sha256"]:
                    yield Finding(path, f"sha256 is {found.sha256}, the manifest has {entry['sha256']}")

    def _against_definition(self, stage: Locked) -> Iterator[Finding]:
        defined = self.pipeline.get(stage.name)
        if defined is None:
            yield Finding("dvc.lock", f"has stage {stage.name}, which dvc.yaml does not define")
            return
        level = self._level_of_input(stage)
        if defined.cmd != stage.cmd:
            yield Finding("dvc.lock", f"{stage.name} ran {stage.cmd!r}, {defined.file} has {defined.cmd!r}", level)
        for kind, stated, locked in (("deps", defined.deps, stage.deps), ("outs", defined.all_outs, stage.outs)):
            if differ := set(stated) ^ set(locked):
                message = f"{stage.name}: {kind} differ from {defined.file}: {', '.join(sorted(differ))}"
                yield Finding("dvc.lock", message, level if kind == "deps" else "error")
        for key, value in stage.params.items():
            if value_at(self.params[defined.params_file], key) != value:
                message = f"{key} differs from the value that {stage.name} ran with; see `dvc params diff`"
                yield Finding(defined.params_file, message)

    def _level_of_input(self, stage: Locked) -> Level:
        """The shipped data was made once, by older code: only a new run can tell whether today's makes the same."""
        defined = self.pipeline.get(stage.name)
        return "note" if defined is not None and defined.file != MAIN.as_posix() else "error"

    def _against_records(self, stage: Locked, records: list[Record], made: list[Record]) -> Iterator[Finding]:
        for record in records:
            if not record.is_intact:
                where = record.path.relative_to(self.root).as_posix()
                yield Finding(where, f"sha256 is {record.digest}, not the one in its name; it was edited")
        same = [record for record in records if record.has_inputs_of(stage)]
        if same and not made:
            message = f"{len(same)} recorded runs with the same inputs made other outputs than those in dvc.lock"
            yield Finding(stage.name, f"{message}: see {RECORDS.as_posix()}/{stage.name}/")
        elif not same:
            yield Finding(stage.name, "no record on this machine of the run in dvc.lock", "note")
        for record in made:
            for kind in ("inputs", "rooms", "code", "outputs"):
                for path, entry in record.content[kind].items():
                    found = self.digest(path)
                    if found is not None and found.md5 == entry["md5"] and found.sha256 != entry["sha256"]:
                        message = f"sha256 is {found.sha256}, record {record.digest[:12]} has {entry['sha256']}"
                        yield Finding(path, message)

    def _against_bytes(self, stage: Locked, path: str, md5: str, files: dict[str, str]) -> Iterator[Finding]:
        """Compare a path with dvc.lock; ``files``, the md5 by file from a record, tells which files differ."""
        is_pretrained = path.startswith(f"{history.PRETRAINED}/")
        found, where = self.digest(path), path
        if found is None and is_pretrained:
            where = history.as_shipped(path)
            found = self.digest(where)
        if found is None:
            if (
                path in stage.deps
                and self._level_of_input(stage) == "note"
                and path not in self.pipeline[stage.name].deps
            ):
                return  # older code, which the comparison with dvc.yaml names
            remedy = "make it with `make world`" if is_pretrained else "get it with `dvc pull`"
            message = f"is missing, but {stage.name} names it; {remedy}"
            yield Finding(path, message, "note" if is_pretrained else "error")
        elif found.md5 != md5:
            level = "error" if path in stage.outs or is_pretrained else self._level_of_input(stage)
            if not (files and found.is_folder):
                yield Finding(where, f"md5 is {found.md5}, dvc.lock has {md5} ({stage.name})", level)
                return
            now = {name: digest.md5 for name, digest in found.files.items()}
            for name in sorted(now | files):
                if now.get(name) != files.get(name):
                    state = f"md5 is {now[name]}" if name in now else "is missing"
                    then = f"has {files[name]}" if name in files else "does not list it"
                    yield Finding(f"{where}/{name}", f"{state}, the record of {stage.name} {then}", level)

    def _against_producers(self, stage: Locked) -> Iterator[Finding]:
        for path, md5 in stage.deps.items():
            for maker in history.producers(self.stages, path):
                if (made := maker.outs.get(path, md5)) == md5:
                    continue
                if stage.name == history.SHIPPED_POINTER:
                    yield Finding(
                        history.as_shipped(path), f"is shipped as {md5 or 'nothing'}, {maker.name} made {made}"
                    )
                else:
                    yield Finding("dvc.lock", f"{stage.name} read {path} as {md5}, {maker.name} made {made}")

    def _digest(self, path: str) -> Digest | None:
        try:
            return digest_path(self.root / path)
        except FileNotFoundError:
            return None

    def _damage(self, store: Path, md5: str, path: str) -> tuple[Finding, ...]:
        """Objects of ``path`` in a cache or local remote whose bytes do not match their name; missing ones are fine."""
        file = history.object_file(store, md5)
        if not file.is_file():
            return ()
        found = digest_path(file).md5
        if found != md5.removesuffix(".dir"):
            where = file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else file.name
            return (Finding(where, f"md5 is {found}, not the one in its name; it is of {path}. Delete it"),)
        listed: list[dict[str, Any]] = json.loads(file.read_bytes()) if md5.endswith(".dir") else []
        below = (self.damage(store, entry["md5"], f"{path}/{entry['relpath']}") for entry in listed)
        return tuple(finding for findings in below for finding in findings)


def _files_of(record: Record) -> dict[str, dict[str, str]]:
    """For each folder in the record, md5 by file."""
    return {
        path: {name: file["md5"] for name, file in entry.get("files", {}).items()}
        for kind in ("inputs", "rooms", "outputs")
        for path, entry in record.content.get(kind, {}).items()
    }
