"""The garbage collection as a flow: objects of the cache and the remote that no commit and no published run names.

``dvc gc --all-commits`` knows neither what runs published nor how old an object is, and it loads the pipeline of every
commit (more than three minutes for 680 commits). So this flow reads the names from git and from the remote. It
deletes objects, entries of the run cache, and old parts and leases of stages, never evidence, journals or checkpoints.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import StateType
from prefect.runtime import flow_run
from pydantic import Field

from evidence.dvc.stores import object_key
from extras.unfinished import HOME as UNFINISHED
from extras.unfinished import STATE
from flows.endings import held_by_flow
from flows.local import storage
from flows.team.deployment import git, kept
from flows.team.deployment.nightly import CLONE
from flows.team.deployment.nightly import HOME as NIGHTLY
from flows.team.notices.hooks import tell
from flows.terminal import flow_output
from ground.io import DataError
from ground.remote import Listed, Store, open_store
from pathfinder.core.parts import PARTS, SEAL

HOME = Path(".pathfinder/garbage")
DAYS = 14.0
_DAY_S = 24 * 3600.0
_WRITERS = ["nightly", "reproduce", "stage"]
_ACTIVE = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_OURS = re.compile(r"files/md5/[0-9a-f]{2}/[0-9a-f]{30}(\.dir)?|runs/[0-9a-f]{2}/[0-9a-f]{64}/[0-9a-f]{64}")
_NAMES_OTHERS = re.compile(rf"^runs/|/({re.escape(STATE)}|{re.escape(SEAL)})$")
_REMOTE_HOMES = (f"{UNFINISHED}/parts", storage.LEASES)
Where = Literal["remote", "cache", "remote and cache"]


@dataclass(frozen=True, slots=True)
class Place:
    """A cache or a remote, what it contains, and of that what nothing names and is older than the grace period."""

    kind: Literal["remote", "cache"]
    name: str
    store: Store
    items: list[Listed] = field(default_factory=list)
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
        before = time.time() - days * _DAY_S
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
    named = kept.in_history(git.mirror(root / HOME / "mirror.git", repository)) | kept.in_folder(root)
    if (root / CLONE).is_dir():
        named |= kept.in_folder(root / CLONE)
    with contextlib.suppress(DataError):  # a shallow clone: the repository has its commits too
        named |= kept.in_history(root)
    return named


def find(places: list[Place], named: set[str], before: float) -> list[Place]:
    """Find the objects of each place that nothing names and that were written before a time, in seconds since 1970.

    Published runs and entries of the run cache that are younger name objects too. An entry is garbage if it is old and
    an object that it names is garbage.
    """
    listed = [[item for item in place.store.listed() if _OURS.fullmatch(item.key)] for place in places]
    entries: list[Mapping[str, set[str]]] = []
    for place, items in zip(places, listed, strict=True):
        known = kept.in_entries(place.store, [item.key for item in items if item.key.startswith("runs/")])
        entries.append(known)
        named = named | (kept.in_evidence(place.store) if place.kind == "remote" else set())
        for key in (item.key for item in items if item.modified >= before):
            named |= known[key] if key in known else {key.removeprefix("files/md5/").replace("/", "")}
    keys = {object_key(md5) for md5 in kept.with_files(named, [place.store for place in places])}
    found = []
    for place, items, known in zip(places, listed, entries, strict=True):
        old = [item for item in items if item.modified < before]
        lost = {item.key for item in old if item.key not in known and item.key not in keys}
        lost |= {key for key, md5s in known.items() if lost.intersection(map(object_key, md5s))}
        found.append(replace(place, items=items, garbage=[item for item in old if item.key in lost]))
    return found


def find_parts(root: Path, before: float) -> list[Place]:
    """Find the parts and leases of ended runs: no file is younger than a time, in seconds since 1970."""
    address, found = storage.configure(root), []
    places = [Place("remote", f"{address}/{each}", storage.opened(root, address, each)) for each in _REMOTE_HOMES]
    for place in (*places, Place("cache", PARTS.as_posix(), open_store(str(root / PARTS)))):
        if items := place.store.listed():
            young = {_part(item.key) for item in items if item.modified >= before}
            found.append(replace(place, items=items, garbage=[item for item in items if _part(item.key) not in young]))
    return found


def sweep_up(places: list[Place]) -> None:
    """Delete what was found, and first what names other objects: so nothing ever names an object that is gone."""
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
