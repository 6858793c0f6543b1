"""Re-hash everything that a result names, and report every difference. Believes no time stamp and no cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from pathfinder.core.io import DataError
from pathfinder.lineage.graph import RAW, read_manifest
from pathfinder.lineage.history import (
    PRETRAINED,
    SHIPPED_POINTER,
    Locked,
    ancestors,
    as_shipped,
    normal,
    object_stores,
    producers,
    read_lock,
    read_records,
)
from pathfinder.provenance.hashing import Digest, digest_path
from pathfinder.provenance.pipeline import MAIN, read_pipelines
from pathfinder.provenance.record import RECORDS

Level = Literal["error", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference (``error``: the claim is not borne out) or something that cannot be known here (``note``)."""

    level: Level
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.where}: {self.message}"


def check(path: str | Path | None = None, root: Path = Path(".")) -> list[Finding]:
    """Check ``path`` and all that is behind it, or everything in dvc.lock.

    Compared: workspace, DVC cache and local remotes against the md5 in dvc.lock and the ``.dvc`` files; dvc.lock
    against itself, dvc.yaml, params.yaml and the records; records against their own names; every source file against
    the manifest's sha256. Raises ``DataError`` where there is nothing to check.
    """
    stages = read_lock(root)
    chosen = stages if path is None else ancestors(stages, normal(path))
    checker = _Checker(root, stages)
    findings: list[Finding] = []
    for stage in chosen.values():
        findings += checker.stage(stage)
    if any(RAW in stage.outs for stage in chosen.values()):
        findings += checker.sources()
    return list(dict.fromkeys(findings))


class _Checker:
    def __init__(self, root: Path, stages: dict[str, Locked]) -> None:
        self.root, self.stages = root, stages
        self.digest = cache(self._digest)  # every path is read once
        self.damage = cache(self._damage)
        self.stores = list(object_stores(root))
        self.pipeline = read_pipelines(root)
        files = {stage.params_file for stage in self.pipeline.values()}
        self.params = {file: yaml.safe_load((root / file).read_text(encoding="utf-8")) for file in files}

    def stage(self, stage: Locked) -> Iterator[Finding]:
        if stage.cmd:
            yield from self._against_definition(stage)
            yield from self._against_records(stage)
        read = stage.deps if stage.cmd else {}  # what is shipped was copied once: compared below, by digest
        for path, md5 in [*read.items(), *stage.outs.items()]:
            yield from self._against_bytes(stage, path, md5)
        for path, md5 in stage.deps.items():
            for maker in producers(self.stages, path):
                if maker.outs.get(path, md5) == md5:
                    continue
                if stage.name == SHIPPED_POINTER:
                    message = f"is shipped as {md5 or 'nothing'}, {maker.name} made {maker.outs[path]}"
                    yield Finding("error", as_shipped(path), message)
                else:
                    yield Finding("error", "dvc.lock", f"{stage.name} read {path} as {md5}, {maker.name} made another")
        for path, md5 in stage.outs.items():
            for store in self.stores:
                yield from self.damage(store, md5, path)

    def sources(self) -> Iterator[Finding]:
        """Every source file, as downloaded and, for shipped ones, at its origin, against the manifest."""
        try:
            manifest = read_manifest(self.root)
        except DataError as error:
            yield Finding("error", RAW, str(error))
            return
        if not manifest:
            yield Finding("error", RAW, "no manifest.json here; fetch it with `dvc pull` or make it with `dvc repro`")
        for name, source in manifest.items():
            folders = [f"{RAW}/{name}", *([source["location"]] if source["kind"] == "shipped" else [])]
            for folder in folders:
                for file, entry in source["files"].items():
                    found = self.digest(f"{folder}/{file}")
                    if found is None or found.sha256 != entry["sha256"]:
                        message = f"sha256 is {found.sha256 if found else 'unknown: no such file'}"
                        yield Finding("error", f"{folder}/{file}", f"{message}, the manifest says {entry['sha256']}")

    def _against_definition(self, stage: Locked) -> Iterator[Finding]:
        defined = self.pipeline.get(stage.name)
        if defined is None:
            yield Finding("error", "dvc.lock", f"holds stage {stage.name}, which dvc.yaml does not define")
            return
        # What is shipped was made once and the code goes on: only a new run could tell whether it still makes the same.
        level: Level = "error" if defined.file == MAIN.as_posix() else "note"
        if defined.cmd != stage.cmd:
            yield Finding("error", "dvc.lock", f"{stage.name} ran {stage.cmd!r}, dvc.yaml says {defined.cmd!r}")
        for kind, stated, locked in (("deps", defined.deps, stage.deps), ("outs", defined.all_outs, stage.outs)):
            if set(map(normal, stated)) != set(locked):
                odd = ", ".join(sorted(set(map(normal, stated)) ^ set(locked)))
                where = level if kind == "deps" else "error"
                yield Finding(where, "dvc.lock", f"{stage.name}: {kind} differ from {defined.file}: {odd}")
        for key, value in stage.params.items():
            if _value(self.params[defined.params_file], key) != value:
                yield Finding(
                    "error", defined.params_file, f"{key} is not what {stage.name} ran with; see `dvc params diff`"
                )

    def _against_records(self, stage: Locked) -> Iterator[Finding]:
        same = []
        for record in read_records(self.root, stage.name):
            if not record.is_intact:
                where = record.path.relative_to(self.root).as_posix()
                yield Finding("error", where, f"its content has sha256 {record.digest}, not its name; it was edited")
            elif record.has_inputs_of(stage):
                same.append(record)
        made = [record for record in same if record.made(stage)]
        if same and not made:
            message = f"{len(same)} recorded runs from the same inputs made other outputs than dvc.lock says"
            yield Finding("error", stage.name, f"{message}: see {RECORDS.as_posix()}/{stage.name}/")
        elif not same:
            yield Finding("note", stage.name, "no record on this machine of the run that dvc.lock describes")
        for record in made:
            for kind in ("inputs", "rooms", "code", "outputs"):
                for path, entry in record.content[kind].items():
                    found = self.digest(path)
                    if found is not None and found.md5 == entry["md5"] and found.sha256 != entry["sha256"]:
                        message = f"sha256 is {found.sha256}, record {record.digest[:12]} says {entry['sha256']}"
                        yield Finding("error", path, message)

    def _against_bytes(self, stage: Locked, path: str, md5: str) -> Iterator[Finding]:
        found = self.digest(path)
        if path.startswith(f"{PRETRAINED}/"):
            found = found or self.digest(as_shipped(path))
            if found is None:
                yield Finding("note", path, f"{stage.name} names it and it is not here; `make world` makes it")
                return
        if found is None:
            yield Finding("error", path, f"{stage.name} names it and it is not here; fetch it with `dvc pull`")
        elif found.md5 != md5:
            defined = self.pipeline.get(stage.name)
            code = defined is not None and defined.file != MAIN.as_posix() and path not in stage.outs
            level: Level = "note" if code and not path.startswith(f"{PRETRAINED}/") else "error"
            yield Finding(level, path, f"md5 is {found.md5}, dvc.lock says {md5} ({stage.name})")

    def _digest(self, path: str) -> Digest | None:
        try:
            return digest_path(self.root / path)
        except FileNotFoundError:
            return None

    def _damage(self, store: Path, md5: str, path: str) -> tuple[Finding, ...]:
        """Objects of ``path`` in a cache or local remote whose bytes are not what their name says; absent ones pass."""
        file = store / "files" / "md5" / md5[:2] / md5[2:]
        where = file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else file.name
        if not md5 or not file.is_file():
            return ()
        found = digest_path(file).md5
        if found != md5.removesuffix(".dir"):
            return (Finding("error", where, f"holds md5 {found}, not its name; it belongs to {path}. Delete it"),)
        if not md5.endswith(".dir"):
            return ()
        listed: list[dict[str, Any]] = json.loads(file.read_bytes())
        below = (self.damage(store, entry["md5"], f"{path}/{entry['relpath']}") for entry in listed)
        return tuple(finding for findings in below for finding in findings)


def _value(content: Any, key: str) -> Any:
    for part in key.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    return content
