"""The source catalogue: fetch the files of one source into a folder and check their digests (docs/data.md, Sources).

Files that an interrupted run fetched stay in the work folder and are not fetched again.
"""

from __future__ import annotations

import os
import re
import shutil
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import httpx

from pathfinder.core.hub import HUB_FILE, HubModel, write_hub_model
from pathfinder.core.io import DataError, TransientError, sha256_file
from pathfinder.core.params import Download, Source
from pathfinder.sources.http_fetch import fetch_file
from pathfinder.sources.remote import open_store

_COMMIT = re.compile(r"[0-9a-f]{40}")
MIRROR_VARIABLE = "PATHFINDER_MIRROR"


@dataclass(frozen=True, slots=True)
class Fetched:
    """The files of one source: the revision that was fetched, and the sha256 and size in bytes of each file."""

    revision: str | None
    files: dict[str, dict[str, Any]]


def fetch_source(source: Source, folder: Path, settings: Download) -> Fetched:
    """Fetch ``source`` into ``folder`` and check its digests; ``settings`` are those of the network.

    Raises ``DataError`` for a wrong digest or setting, ``TransientError`` if the network fails.
    """
    _check_names(source, source.files)
    folder.mkdir(parents=True, exist_ok=True)
    revision = source.revision
    match source.kind:
        case "shipped" | "mirror":
            names = _copy(source, folder)
        case "https":
            names = _https(source, folder, settings)
        case "hub":
            revision, names = _hub(source, folder)
        case "s3":
            names = _s3(source, folder)
    if not names:
        raise DataError(f"source {source.name}: {source.location} holds no file; correct download.sources")
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(names):
        path, expected = folder / name, source.files.get(name)
        found[name] = {"sha256": sha256_file(path), "bytes": path.stat().st_size}
        if expected not in (None, found[name]["sha256"]):
            path.unlink()
            raise DataError(
                f"source {source.name}: {name} has sha256 {found[name]['sha256']}, expected {expected}. If upstream "
                "changed on purpose, review the change and put the new digest into download.sources; otherwise fetch "
                "from a trusted place"
            )
    return Fetched(revision, found)


def _check_names(source: Source, names: Iterable[str]) -> None:
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or _is_hidden(name) or "\\" in name:
            raise DataError(
                f"source {source.name}: {name!r} is not a file name below the source; correct download.sources"
            )


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _visible(source: Source, names: Iterable[str]) -> list[str]:
    kept = sorted(name for name in names if not _is_hidden(name))
    _check_names(source, kept)
    return kept


def _is_missing(target: Path, expected: str | None) -> bool:
    """Whether to fetch a file: it does not exist, or has another digest than the expected one."""
    return not target.exists() or (expected is not None and sha256_file(target) != expected)


def _copy(source: Source, folder: Path) -> list[str]:
    """Copy the listed files, or every visible file if none is listed."""
    origin, remedy = Path(source.location), "fetch the shipped world with `dvc pull data`, or make it with `make world`"
    if source.kind == "mirror":
        mirror, remedy = os.environ.get(MIRROR_VARIABLE), f"correct {MIRROR_VARIABLE} or download.sources"
        if not mirror:
            raise DataError(
                f"source {source.name}: {MIRROR_VARIABLE} is not set; set it to the folder that holds {origin}/"
            )
        origin = mirror / origin
    elif origin.is_absolute() or ".." in origin.parts:
        raise DataError(f"source {source.name}: {origin} is not a folder of the project")
    if not origin.is_dir():
        raise DataError(f"source {source.name}: no folder {source.location}; {remedy}")
    files = (path.relative_to(origin).as_posix() for path in origin.rglob("*") if path.is_file())
    names = list(source.files) or _visible(source, files)
    shutil.rmtree(folder)
    for name in names:
        if not (origin / name).is_file():
            raise DataError(f"source {source.name}: {source.location} has no file {name}; {remedy}")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin / name, folder / name)
    return names


def _https(source: Source, folder: Path, settings: Download) -> list[str]:
    if not source.files:
        raise DataError(f"source {source.name}: an https source cannot be listed; name its files in download.sources")
    base = "/".join(part.strip("/") for part in (source.location, source.revision) if part)
    for name, expected in source.files.items():
        if _is_missing(folder / name, expected):
            fetch_file(f"{base}/{urllib.parse.quote(name)}", folder / name, folder / ".partial", settings)
    return list(source.files)


def _s3(source: Source, folder: Path) -> list[str]:
    store = open_store(source.location)
    names = list(source.files) or _visible(source, store.keys())
    for name in names:
        if _is_missing(folder / name, source.files.get(name)):
            store.fetch(name, folder / name)
    return names


def _hub(source: Source, folder: Path) -> tuple[str, list[str]]:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return _from_hub(source, folder)
    except (HfHubHTTPError, httpx.HTTPError, OSError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        message = f"source {source.name}: {source.location} at {source.revision}: {error}"
        if status is not None and 400 <= status < 500 and status not in (408, 429):
            raise DataError(f"{message}; correct download.sources, or give access with HF_TOKEN") from error
        raise TransientError(message) from error


def _from_hub(source: Source, folder: Path) -> tuple[str, list[str]]:
    """Fetch the files of a repository at one commit. Of a model, record only name and commit."""
    import huggingface_hub

    kind = "dataset" if source.location.startswith("datasets/") else "model"
    repo = source.location.removeprefix("datasets/")
    api = huggingface_hub.HfApi()
    revision = source.revision or "main"
    if not _COMMIT.fullmatch(revision):
        revision = str(api.repo_info(repo, repo_type=kind, revision=revision).sha)
    if source.name.startswith("models/"):
        write_hub_model(folder, HubModel(repo, revision))
        return revision, [HUB_FILE]
    cache = folder / ".hub" / revision  # a folder per commit: a branch may move between two runs
    names = list(source.files) or _visible(source, api.list_repo_files(repo, repo_type=kind, revision=revision))
    for name in names:
        target = folder / name
        if _is_missing(target, source.files.get(name)) or not (cache / name).exists():
            huggingface_hub.hf_hub_download(repo, name, repo_type=kind, revision=revision, local_dir=cache)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.hardlink_to(cache / name)
    return revision, names
