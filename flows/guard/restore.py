"""Restore a published run from the remote: its lock and its outs, as the signed log names them.

DVC only copies from its cache to the workspace here. What enters the cache passes the guard first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from evidence.dvc.history import MAIN_LOCK
from evidence.dvc.pipeline import read_pipeline
from evidence.record.environment import git
from evidence.remote.guard import Guard
from evidence.remote.published import Entry
from flows import storage
from flows.dvc import Dvc, require_project
from flows.graph import missing_data
from ground.io import DataError, write_bytes

_PATCHED = re.compile(rb"^diff --git a/.* b/(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored run: its entry of the log with the signers, and the counts of stages and objects."""

    remote: str
    entry: int
    signers: list[str]
    commit: str | None
    here: str | None
    lock: str
    stages: int
    unknown_stages: list[str]
    objects: int
    patch: str | None
    patched: list[str]

    def lines(self) -> Iterator[str]:
        """Sentences for a reader."""
        keys = ", ".join(key[:12] for key in self.signers)
        yield f"entry {self.entry} of {self.remote}, signed by key {keys}, commit {(self.commit or 'unknown')[:12]}"
        if self.commit != self.here:
            yield f"this is commit {(self.here or 'unknown')[:12]}: `pathfinder lineage check` names what differs"
        yield f"{MAIN_LOCK}: {self.lock}"
        yield f"{self.stages} stages restored from {self.objects} objects, each with the digest that the entry names"
        if self.unknown_stages:
            yield f"not in dvc.yaml here, so not restored: {', '.join(self.unknown_stages)}"
        if self.patched:
            names = ", ".join(self.patched)
            command = f"git apply --exclude={MAIN_LOCK} {self.patch}"
            yield f"the run had uncommitted changes of {names}; `{command}` makes them here"


def pull(root: Path, keys: Iterable[Path] = (), force: bool = False) -> Restored:
    """Restore the newest published run of this commit or, if there is none, the newest run.

    Raises ``DataError`` if the log is not sound or not signed by a trusted key, if an object does not have the digest
    that the entry names, or if the lock has changes that no published run made and ``force`` is false.
    """
    require_project(root)
    storage.configure(root)
    guard, dvc = Guard(root, keys), Dvc(root)
    commit = (git("rev-parse", "HEAD", root=root) or "").strip() or None
    entry = guard.entry_of(commit)
    dvc.fetch(missing_data(root))
    lock = _place_lock(root, guard, entry, force)
    known = read_pipeline(root)
    stages = {name: stage for name, stage in guard.locked(entry).items() if name in known}
    objects = guard.fetcher.provide({path: md5 for stage in stages.values() for path, md5 in stage.outs.items()})
    dvc.checkout(*stages, force=force)
    patch = guard.published.file("patches", f"{entry.manifest.patch}.patch") if entry.manifest.patch else None
    patched = sorted({name.decode() for name in _PATCHED.findall(patch.read_bytes())} - {MAIN_LOCK}) if patch else []
    return Restored(
        remote=guard.remote.address,
        entry=entry.number,
        signers=entry.signers,
        commit=entry.manifest.commit,
        here=commit,
        lock=lock,
        stages=len(stages),
        unknown_stages=sorted(guard.locked(entry).keys() - stages.keys()),
        objects=objects,
        patch=str(patch) if patch else None,
        patched=patched,
    )


def _place_lock(root: Path, guard: Guard, entry: Entry, force: bool) -> str:
    """Put the run's lock in place; returns what was done."""
    target, content = root / MAIN_LOCK, guard.lock_file(entry).read_bytes()
    if target.exists() and target.read_bytes() == content:
        return "is the run's"
    published = [guard.published.file("locks", f"{each.manifest.dvc_lock}.lock") for each in guard.entries]
    is_known = target.exists() and any(file.read_bytes() == target.read_bytes() for file in published if file.exists())
    if git("status", "--porcelain", "--", MAIN_LOCK, root=root) and not is_known and not force:
        raise DataError(f"{MAIN_LOCK}: has changes that no published run made; commit them, or replace it with --force")
    write_bytes(target, content)
    return "replaced by the run's"
