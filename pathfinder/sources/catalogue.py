"""The source catalogue: bringing one source's files into a folder, from wherever it lies.

| kind | location | revision |
| --- | --- | --- |
| shipped | a folder of the project (``data/…``) | - |
| mirror | a folder below the environment's ``PATHFINDER_MIRROR`` | - |
| https | the address that file names are put behind | path segment between the two |
| hub | ``owner/name``, with ``datasets/`` before a data set | branch, tag or commit; the commit is what is recorded |
| s3 | ``s3://bucket/prefix`` | - |

Files that an interrupted run finished or began stay in the work folder; HTTP goes on with a range request. Every
digest that the catalogue gives is checked, every digest found is returned.
"""

from __future__ import annotations

import re
import shutil
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pathfinder.core.io import DataError, TransientError, atomic_file, sha256_file, write_json
from pathfinder.core.params import Download, Source
from pathfinder.sources.http_fetch import Fetcher

_Brought = tuple[str | None, list[str]]  # the revision that was read, and the names of the files
_COMMIT = re.compile(r"[0-9a-f]{40}")
MIRROR_VARIABLE = "PATHFINDER_MIRROR"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one source brought: the revision that was really read, and per file its sha256 and size in bytes."""

    revision: str | None
    files: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a source is fetched to, how patiently, and the mirror's root where the environment names one."""

    folder: Path
    settings: Download
    mirror: Path | None


def fetch_source(source: Source, place: Place) -> Fetched:
    """Bring ``source`` into ``place.folder`` and check it; raises ``DataError`` for a wrong digest or setting."""
    for name in source.files:
        _check_name(source, name)
    place.folder.mkdir(parents=True, exist_ok=True)
    revision, names = _KINDS[source.kind](source, place)
    files = {name: place.folder / name for name in sorted(names)}
    if not files:
        raise DataError(f"source {source.name}: {source.location} holds no file; correct download.sources")
    found = {name: {"sha256": sha256_file(path), "bytes": path.stat().st_size} for name, path in files.items()}
    for name, expected in source.files.items():
        if expected is not None and name in found and found[name]["sha256"] != expected:
            files[name].unlink()
            raise DataError(
                f"source {source.name}: {name} has sha256 {found[name]['sha256']}, expected {expected}. If upstream "
                "changed on purpose, review the change and put the new digest into download.sources; otherwise fetch "
                "from a trusted place"
            )
    return Fetched(revision, found)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _check_name(source: Source, name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or _hidden(Path(name)) or "\\" in name:
        raise DataError(f"source {source.name}: {name!r} is no file name below the source; correct download.sources")


def _shipped(source: Source, place: Place) -> _Brought:
    if Path(source.location).is_absolute() or ".." in Path(source.location).parts:
        raise DataError(f"source {source.name}: {source.location} is not a folder of the project")
    remedy = "fetch the shipped world with `dvc pull data`, or make it with `make world`"
    return _copy(source, Path(source.location), place.folder, remedy)


def _mirror(source: Source, place: Place) -> _Brought:
    if place.mirror is None:
        raise DataError(
            f"source {source.name}: {MIRROR_VARIABLE} is not set; set it to the folder that holds {source.location}/"
        )
    return _copy(source, place.mirror / source.location, place.folder, f"correct {MIRROR_VARIABLE} or download.sources")


def _copy(source: Source, origin: Path, folder: Path, remedy: str) -> _Brought:
    """Copy the listed files, or all but hidden ones."""
    if not origin.is_dir():
        raise DataError(f"source {source.name}: no folder {source.location}; {remedy}")
    every = (path.relative_to(origin) for path in sorted(origin.rglob("*")) if path.is_file())
    names = [Path(name) for name in source.files] or [path for path in every if not _hidden(path)]
    shutil.rmtree(folder)
    for name in names:
        if not (origin / name).is_file():
            raise DataError(f"source {source.name}: {source.location} has no file {name}; {remedy}")
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin / name, target)
    return source.revision, [name.as_posix() for name in names]


def _https(source: Source, place: Place) -> _Brought:
    if not source.files:
        raise DataError(f"source {source.name}: an https source cannot be listed; name its files in download.sources")
    base = "/".join(part.strip("/") for part in (source.location, source.revision) if part)
    fetcher = Fetcher(place.folder / ".partial", place.settings.retries, place.settings.timeout_s)
    for name, expected in source.files.items():
        target = place.folder / name
        if _missing(target, expected):
            fetcher.fetch(f"{base}/{urllib.parse.quote(name)}", target)
    return source.revision, list(source.files)


def _missing(target: Path, expected: str | None) -> bool:
    """Whether a file must be fetched; what an earlier run finished is taken where its digest fits or none is known."""
    return not target.exists() or (expected is not None and sha256_file(target) != expected)


def _s3(source: Source, place: Place) -> _Brought:
    from pathfinder.sources.remote import open_store

    store = open_store(source.location)
    names = list(source.files) or _listed(source, (found.key for found in store.objects()))
    for name in names:
        if _missing(place.folder / name, source.files.get(name)):
            with atomic_file(place.folder / name) as temporary:
                store.fetch(name, temporary)
    return source.revision, names


def _listed(source: Source, names: Iterable[str]) -> list[str]:
    kept = sorted(name for name in names if not _hidden(Path(name)))
    for name in kept:
        _check_name(source, name)
    return kept


def _hub(source: Source, place: Place) -> _Brought:
    """Files of a Hub repository at one commit; for a model, its name and commit alone: weights stay in the cache."""
    import httpx
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return _from_hub(source, place)
    except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        message = f"source {source.name}: {source.location} at {source.revision}: {error}"
        if status is not None and 400 <= status < 500 and status not in (408, 429):
            raise DataError(f"{message}; correct download.sources, or give access with HF_TOKEN") from error
        raise TransientError(message) from error


def _from_hub(source: Source, place: Place) -> _Brought:
    import huggingface_hub

    kind = "dataset" if source.location.startswith("datasets/") else "model"
    repo = source.location.removeprefix("datasets/")
    api = huggingface_hub.HfApi()
    revision = source.revision or "main"
    if not _COMMIT.fullmatch(revision):
        revision = str(api.repo_info(repo, repo_type=kind, revision=revision).sha)
    if source.name.startswith("models/"):
        write_json(place.folder / "hub.json", {"repo": repo, "revision": revision})
        return revision, ["hub.json"]
    folder = place.folder / ".hub" / revision  # a branch that moved since an interrupted run starts anew
    names = list(source.files) or _listed(source, api.list_repo_files(repo, repo_type=kind, revision=revision))
    for name in names:
        if _missing(place.folder / name, source.files.get(name)) or not (folder / name).exists():
            huggingface_hub.hf_hub_download(repo, name, repo_type=kind, revision=revision, local_dir=folder)
            (place.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (place.folder / name).unlink(missing_ok=True)
            (place.folder / name).hardlink_to(folder / name)
    return revision, names


_KINDS: dict[str, Callable[[Source, Place], _Brought]] = {
    "shipped": _shipped,
    "mirror": _mirror,
    "https": _https,
    "hub": _hub,
    "s3": _s3,
}
