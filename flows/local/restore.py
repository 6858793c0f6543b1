"""Restore a published run from the remote: its lock and its outs, as the signed log names them.

DVC only copies from its cache to the workspace here. What enters the cache passes the guard first.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from evidence.dvc.history import MAIN_LOCK
from evidence.dvc.pipeline import read_pipeline
from evidence.dvc.stores import object_file, read_listing
from evidence.record.environment import git
from evidence.remote.guard import Guard
from flows.local import storage
from flows.local.dvc import Dvc, require_project
from flows.local.graph import meet, missing_data
from ground.hashing import digest_path
from ground.io import DataError, atomic_file, write_bytes

_PATTERN = re.compile(r"[\\*?\[]")
"""The characters that `git apply --include` does not take literally."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored run: its entry of the log with the signers, and the counts of stages and objects.

    ``patched`` are the files that the run had changed, and ``differs`` the outs that git holds with different bytes:
    both are empty if the run's versions were put here.
    """

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
    differs: list[str]

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
        if self.patched or self.differs:
            names = ", ".join(sorted({*self.patched, *self.differs}))
            yield f"git holds different bytes of {names}; `pathfinder pull --apply` puts the run's here"


def pull(root: Path, keys: Iterable[Path] = (), force: bool = False, apply: bool = False) -> Restored:
    """Restore the newest published run of this commit or, if there is none, the newest run.

    With ``apply``, also make the run's uncommitted changes, and replace outs that git holds by the run's. Raises
    ``DataError`` if the log is not sound or not signed by a trusted key, if an object does not have the digest that the
    entry names, if the changes do not fit, or if, without ``force``, the lock has changes that no published run made.
    """
    require_project(root)
    storage.configure(root)
    guard, dvc = Guard(root, keys), Dvc(root)
    commit = (git("rev-parse", "HEAD", root=root) or "").strip() or None
    entry = guard.entry_of(commit)
    dvc.fetch(missing_data(root))
    content = guard.lock_file(entry).read_bytes()
    lock = _require_replaceable(root, guard, content, force)
    known = read_pipeline(root)
    stages = {name: stage for name, stage in guard.locked(entry).items() if name in known}
    outs = {path: md5 for stage in stages.values() for path, md5 in stage.outs.items()}
    objects = guard.fetcher.provide(outs)
    write_bytes(root / MAIN_LOCK, content)
    dvc.checkout(*stages, force=force)
    patch = guard.published.folder / "patches" / f"{entry.manifest.patch}.patch" if entry.manifest.patch else None
    changed = _changed(root, patch) - {MAIN_LOCK} if patch else set()
    differs = {
        path: md5 for path, md5 in outs.items() if not (root / path).exists() or digest_path(root / path).md5 != md5
    }
    patched = sorted(name for name in changed if not meet([name], outs))
    if apply:
        _apply(root, patch, patched)
        for path, md5 in differs.items():
            install(root / path, guard.fetcher.cache, md5)
        patched, differs = [], {}
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
        differs=sorted(differs),
    )


def _changed(root: Path, patch: Path) -> set[str]:
    """The files that a patch changes."""
    if (listed := git("apply", "--numstat", "-z", str(patch), root=root)) is None:
        raise DataError(f"{patch}: git cannot read it; see `git apply --stat` of it")
    return {line.split("\t", 2)[2] for line in listed.split("\0") if line}


def _apply(root: Path, patch: Path | None, names: list[str]) -> None:
    """Make the changes of these files in a patch, which the signed log names, unless they are made already."""
    words = ["apply", *("--include=" + _PATTERN.sub(r"\\\g<0>", name) for name in names), str(patch)]
    if patch is None or not names or git(*words[:1], "--reverse", "--check", *words[1:], root=root) is not None:
        return
    if git(*words, root=root) is None:
        listed = ", ".join(names)
        raise DataError(f"{patch}: does not fit {listed} here; change to the run's commit without changes of your own")


def install(place: Path, cache: Path, md5: str) -> None:
    """Put an out from the cache in place; DVC does not, because git holds the out."""
    files = read_listing(object_file(cache, md5)) if md5.endswith(".dir") else {"": md5}
    for name, inner in files.items():
        with atomic_file(place / name) as temporary:
            shutil.copyfile(object_file(cache, inner), temporary)


def _require_replaceable(root: Path, guard: Guard, content: bytes, force: bool) -> str:
    """Say what becomes of the lock; raises ``DataError`` if it has changes that no published run made."""
    if (own := (root / MAIN_LOCK).read_bytes() if (root / MAIN_LOCK).exists() else None) == content:
        return "is the run's"
    is_known = any(file.read_bytes() == own for file in map(guard.lock_file, guard.entries) if file.exists())
    if git("status", "--porcelain", "--", MAIN_LOCK, root=root) and not is_known and not force:
        raise DataError(f"{MAIN_LOCK}: has changes that no published run made; commit them, or replace it with --force")
    return "replaced by the run's"
