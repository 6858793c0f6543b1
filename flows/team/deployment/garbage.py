"""The garbage collection as a flow: objects of the cache and the remote that no commit and no published run names.

``dvc gc --all-commits`` knows neither the publications of runs nor the age of an object, and it loads the pipeline of
every commit (more than three minutes for 680 commits). So this flow reads the names from git and from the remote: every
text that looks like an md5 counts as a name, so an unknown format keeps too much, not too little. It deletes objects,
entries of the run cache, and old parts and leases of stages, never evidence, journals or checkpoints.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import StateType
from prefect.runtime import flow_run
from pydantic import Field

from evidence.dvc.history import MAIN_LOCK, pointers
from evidence.dvc.pipeline import PIPELINES
from evidence.dvc.stores import FOLDER, object_key, parse_listing
from extras.unfinished import HOME as UNFINISHED
from extras.unfinished import STATE
from flows.endings import held_by_flow
from flows.local import storage
from flows.team.deployment import git
from flows.team.deployment.nightly import CLONE
from flows.team.deployment.nightly import HOME as NIGHTLY
from flows.team.notices.hooks import tell
from flows.terminal import flow_output
from ground.hashing import digest_chunks
from ground.io import DataError
from ground.remote import READERS, Listed, Store, open_store
from pathfinder.core.parts import PARTS, SEAL

HOME = Path(".pathfinder/garbage")
DAYS = 14.0
_WRITERS = ["nightly", "reproduce", "stage"]
_ACTIVE = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_OURS = re.compile(r"files/md5/[0-9a-f]{2}/[0-9a-f]{30}(\.dir)?|runs/[0-9a-f]{2}/[0-9a-f]{64}/[0-9a-f]{64}")
_NAMES_OTHERS = re.compile(rf"^runs/|/({re.escape(STATE)}|{re.escape(SEAL)})$")
_MD5 = re.compile(rb"\b[0-9a-f]{32}\b(?:\.dir\b)?")
_REMOTE_HOMES = (f"{UNFINISHED}/parts", storage.LEASES)
Where = Literal["remote", "cache", "remote and cache"]


@dataclass(slots=True)
class Place:
    """A cache or remote, its content, the objects that each run-cache entry names, and the old unnamed objects."""

    kind: Literal["remote", "cache"]
    name: str
    store: Store
    items: list[Listed] = field(default_factory=list)
    entries: Mapping[str, set[str]] = field(default_factory=dict)
    garbage: list[Listed] = field(default_factory=list)

    def as_row(self) -> dict[str, Any]:
        """A row of the table artifact; sizes in bytes."""
        return {
            "place": f"{self.kind} {self.name}",
            "objects": len(self.items),
            "bytes": sum(item.size for item in self.items),
            "garbage": len(self.garbage),
            "garbage bytes": sum(item.size for item in self.garbage),
        }


def run_name() -> str:
    """The name of a collection, with its place; a dry run deletes nothing."""
    parameters = flow_run.get_parameters()
    return f"garbage of the {parameters.get('where')}" + ("" if parameters.get("delete") else " (dry run)")


@flow(name="garbage", flow_run_name=run_name, persist_result=False, on_failure=[tell], on_crashed=[tell])
def garbage(
    where: Where = "remote and cache",
    delete: bool = False,
    days: Annotated[float, Field(ge=1, le=3650)] = DAYS,
    repository: str = "",
) -> str:
    """Find, and on request delete, what no commit, branch, tag, workspace or published run names.

    Parts of stages (docs/data.md) can always be computed again, so every old one is garbage.

    Args:
        where: The remote, the caches of the worker's folder, or both.
        delete: Delete what is found; otherwise the run only reports numbers and sizes.
        days: Objects that are younger stay, because a run may still push or commit what names them.
        repository: The repository whose references keep objects; empty for the origin of the worker's folder.

    Raises ``DataError`` if a run is in progress, or if the files of a folder are unknown; then nothing is deleted.
    """
    root, say = Path.cwd(), flow_output("garbage")
    storage.require_remote()
    with held_by_flow(root, say), held_by_flow(root / NIGHTLY, say):
        if delete:
            refuse_during_runs()
        named = names_of(root, repository or git.origin_of(root))
        before = time.time() - days * 24 * 3600
        found = [*find(list(places_of(root)), named, before), *find_parts(root, before)]
        places = [place for place in found if place.kind in where]
        create_table_artifact(table=[place.as_row() for place in places], key="garbage", description="What is unnamed")
        if delete:
            refuse_during_runs()
            sweep_up(places)
            remove_empty(root)
    lines = [describe(place, delete) for place in places]
    for line in lines:
        say(line)
    return "; ".join(lines)


def refuse_during_runs() -> None:
    """Raise ``DataError`` if a run of the pipeline starts or is in progress on this Prefect server."""
    flows = FlowFilter.model_validate({"name": {"any_": _WRITERS}})
    runs = FlowRunFilter.model_validate({"state": {"type": {"any_": _ACTIVE}}})
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(flow_filter=flows, flow_run_filter=runs, limit=1)
    if found:
        raise DataError(f"run {found[0].name} is in progress and may use what would be deleted; repeat this later")


def places_of(root: Path) -> Iterator[Place]:
    """The remote that runs of this folder use, and the caches of the folder and of its nightly clone."""
    address = storage.configure(root)
    yield Place("remote", address, storage.opened(root, address))
    for folder in (root, root / CLONE):
        if (cache := folder / ".dvc/cache").is_dir():
            yield Place("cache", cache.relative_to(root).as_posix(), open_store(str(cache)))


def names_of(root: Path, repository: str) -> set[str]:
    """The objects that commits of ``repository`` or of this folder name, or files here or in the nightly clone."""
    named = in_history(git.mirror(root / HOME / "mirror.git", repository)) | in_folder(root) | in_folder(root / CLONE)
    with contextlib.suppress(DataError):  # a shallow clone: the repository has its commits too
        named |= in_history(root)
    return named


def find(places: list[Place], named: set[str], before: float) -> list[Place]:
    """Find the objects of each place that nothing names and that were written before a time, in seconds since 1970.

    Published runs and entries of the run cache that are younger name objects too. An entry is garbage if it is old and
    an object that it names is garbage.
    """
    named = set(named)
    for place in places:
        place.items = [item for item in place.store.listed() if _OURS.fullmatch(item.key)]
        place.entries = in_entries(place.store, [item.key for item in place.items if item.key.startswith("runs/")])
        if place.kind == "remote":
            evidence = [key for kind in ("manifests", "locks") for key in place.store.keys(f"{FOLDER}/{kind}/")]
            named = named.union(*in_entries(place.store, evidence).values())
        for key in (item.key for item in place.items if item.modified >= before):
            named |= place.entries.get(key, {key.removeprefix("files/md5/").replace("/", "")})
    keys = {object_key(md5) for md5 in with_files(named, [place.store for place in places])}
    for place in places:
        old = [item for item in place.items if item.modified < before]
        lost = {item.key for item in old if item.key not in place.entries and item.key not in keys}
        lost |= {key for key, md5s in place.entries.items() if lost.intersection(map(object_key, md5s))}
        place.garbage = [item for item in old if item.key in lost]
    return places


def find_parts(root: Path, before: float) -> list[Place]:
    """Find the parts and leases of ended runs: no file is younger than a time, in seconds since 1970."""
    address = storage.configure(root)
    places = [Place("remote", f"{address}/{each}", storage.opened(root, address, each)) for each in _REMOTE_HOMES]
    places.append(Place("cache", PARTS.as_posix(), open_store(str(root / PARTS))))
    for place in places:
        place.items = place.store.listed()
        young = {_part(item.key) for item in place.items if item.modified >= before}
        place.garbage = [item for item in place.items if _part(item.key) not in young]
    return [place for place in places if place.items]


def sweep_up(places: list[Place]) -> None:
    """Delete what was found, first the files that name objects: so nothing ever names a deleted object."""
    for place in places:
        for item in sorted(place.garbage, key=lambda item: not _NAMES_OTHERS.search(item.key)):
            place.store.delete(item.key)


def remove_empty(root: Path) -> None:
    """Remove the folders of parts whose files were deleted."""
    for folder in (root / PARTS).glob("*/*"):
        with contextlib.suppress(OSError):  # it has files
            folder.rmdir()


def describe(place: Place, deleted: bool) -> str:
    """One line about one place."""
    row = place.as_row()
    verb = "deleted" if deleted else "would delete"
    return (
        f"{row['place']}: {verb} {row['garbage']:,} of {row['objects']:,} objects, "
        f"{row['garbage bytes'] / 2**20:,.1f} of {row['bytes'] / 2**20:,.1f} MiB"
    )


def _part(key: str) -> str:
    """The stage and the folder of a part."""
    return "/".join(key.split("/")[:2])


def in_text(content: bytes) -> set[str]:
    """Every md5 in a text, with ``.dir`` where it names a folder."""
    return {found.decode() for found in _MD5.findall(content)}


def in_folder(root: Path) -> set[str]:
    """The objects that locks and ``.dvc`` files in a folder name, committed or not."""
    locks = [root / file.with_name(MAIN_LOCK) for file in PIPELINES]
    return {md5 for path in (*locks, *pointers(root)) if path.is_file() for md5 in in_text(path.read_bytes())}


def in_history(repository: Path) -> set[str]:
    """The objects that commits with a reference or reflog name; raises ``DataError`` if a clone is shallow."""
    if git.text(repository, "rev-parse", "--is-shallow-repository") == "true":
        raise DataError(f"{repository}: is a shallow clone, so older commits are unknown; run `git fetch --unshallow`")
    # Every version of a file is a change from a parent of some commit, so the changes name all versions.
    raw = ["--raw", "--no-abbrev", "--no-renames", "-m", "--root", "--format="]
    changes = git.run(repository, "log", "--all", "--reflog", "--full-history", *raw, "--", f"*{MAIN_LOCK}", "*.dvc")
    blobs = {line.split()[3] for line in changes.splitlines() if line.startswith(b":")}
    present = sorted(blob for blob in blobs if blob.strip(b"0"))
    return in_text(git.run(repository, "cat-file", "--batch", given=b"".join(blob + b"\n" for blob in present)))


def in_entries(store: Store, keys: Sequence[str]) -> Mapping[str, set[str]]:
    """The objects that texts in a store name, by the key of the text; raises as a store does."""
    return dict(zip(keys, map(in_text, _read(store, keys)), strict=True))


def with_files(named: Iterable[str], stores: Iterable[Store]) -> set[str]:
    """``named`` and the files of their folders as ``stores`` list them; raises ``DataError`` if a list was edited."""
    kept = set(named)
    for store in stores:
        have = set(store.keys("files/md5/"))
        folders = sorted(md5 for md5 in kept if md5.endswith(".dir") and object_key(md5) in have)
        for md5, content in zip(folders, _read(store, map(object_key, folders)), strict=True):
            if digest_chunks([content]).md5 != md5.removesuffix(".dir"):
                raise DataError(
                    f"{store.url}/{object_key(md5)}: was edited, so the files of this folder are unknown and nothing "
                    "is deleted; `pathfinder lineage check --remote` says what it is"
                )
            kept |= set(parse_listing(content, object_key(md5)).values())
    return kept


def _read(store: Store, keys: Iterable[str]) -> Iterator[bytes]:
    with ThreadPoolExecutor(READERS) as pool:
        yield from pool.map(store.read, keys)
