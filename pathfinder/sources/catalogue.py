"""The source catalogue: fetch the files of a source into a folder, check their digests, and pin them in params.yaml.

Files that an interrupted run fetched stay in the work folder and are not fetched again. See docs/data.md, Sources.
"""

from __future__ import annotations

import os
import shutil
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ground.io import DataError, atomic_file, sha256_file
from ground.remote import open_store
from pathfinder.core.commented_yaml import dump_commented, load_commented
from pathfinder.core.hub import HUB_FILE, write_hub_model
from pathfinder.core.params import Download, Source, load_params
from pathfinder.sources.http_fetch import fetch_file
from pathfinder.sources.hub import Listing, fetch_dataset, fetch_model, look_up, require_cache_space, wrong

MIRROR_VARIABLE = "PATHFINDER_MIRROR"
_WIDTH = 4096  # no line of params.yaml is wrapped


@dataclass(frozen=True, slots=True)
class Fetched:
    """The files of one source: the revision that was fetched, and the sha256 and size in bytes of each file.

    ``files`` are below the source's folder; ``cached`` are the files of a Hub model, in the Hub's cache.
    """

    revision: str | None
    files: dict[str, dict[str, Any]]
    cached: dict[str, dict[str, Any]] = field(default_factory=dict)


def look_up_all(settings: Download) -> dict[str, Listing]:
    """The listing of each source of the Hub, by source name, if the disk of the Hub's cache has room for the models.

    Raises ``DataError`` for a wrong setting, a missing permission or a full disk, ``TransientError`` if the Hub cannot
    be reached.
    """
    found = {}
    for source in settings.sources:
        if source.kind == "hub":
            _check_names(source, [*source.files, *map(source.path_of, source.files)])
            _check_model_names(source)
            found[source.name] = look_up(source, settings)
    require_cache_space(found)
    return found


def fetch_source(source: Source, folder: Path, settings: Download, listing: Listing | None = None) -> Fetched:
    """Fetch ``source`` into ``folder`` and check its digests; ``settings`` are the network's.

    ``listing`` comes from ``look_up_all``; a Hub source without a listing is looked up. Raises
    ``DataError`` for a wrong digest or setting, ``TransientError`` if the network fails.
    """
    _check_names(source, [*source.files, *map(source.path_of, source.files)])
    folder.mkdir(parents=True, exist_ok=True)
    revision, cached = source.revision, {}
    match source.kind:
        case "shipped" | "mirror":
            names = _copy(source, folder)
        case "https":
            names = _https(source, folder, settings)
        case "hub":
            listing = listing or look_up_all(settings.model_copy(update={"sources": [source]}))[source.name]
            revision = listing.revision
            if listing.kind == "model":
                model = fetch_model(source, listing, settings)
                write_hub_model(folder, model)
                names, cached = [HUB_FILE], model.files
            else:
                names = _dataset(source, listing, folder, settings)
        case "s3":
            names = _s3(source, folder)
    if not names:
        raise wrong(source, f"{source.location} holds no file")
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(names):
        path, expected = folder / name, source.sha256_of(name)
        found[name] = {"sha256": sha256_file(path), "bytes": path.stat().st_size}
        if expected not in (None, found[name]["sha256"]):
            path.unlink()
            raise DataError(
                f"source {source.name}: {name} has sha256 {found[name]['sha256']}, expected {expected}. If upstream "
                "changed on purpose, review the change and put the new digest into download.sources; otherwise fetch "
                "from a trusted place"
            )
    return Fetched(revision, found, cached)


def _check_model_names(source: Source) -> None:
    """The Hub's cache keeps upstream names, so a model's files cannot be renamed, and a data set cannot be a model."""
    is_model = source.name.startswith("models/")
    if is_model == source.location.startswith("datasets/"):
        raise wrong(source, f"{source.location} is {'a data set' if is_model else 'a model'} of the Hub")
    if renamed := [name for name in source.files if is_model and source.path_of(name) != name]:
        raise wrong(source, f"a model's {renamed[0]} cannot have a different name")


def _check_names(source: Source, names: Iterable[str]) -> None:
    for name in names:
        path = PurePosixPath(name)
        is_plain = name.isprintable() and "\\" not in name
        if path.is_absolute() or ".." in path.parts or not path.parts or _is_hidden(name) or not is_plain:
            raise wrong(source, f"{name!r} is not a file name below the source")


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _visible(source: Source, names: Iterable[str]) -> list[str]:
    kept = sorted(name for name in names if not _is_hidden(name))
    _check_names(source, kept)
    return kept


def _is_missing(target: Path, expected: str | None) -> bool:
    """Return whether to fetch a file: it does not exist, or its digest differs from the expected digest."""
    return not target.exists() or (expected is not None and sha256_file(target) != expected)


def _copy(source: Source, folder: Path) -> list[str]:
    """Copy the listed files, or every visible file if none is listed."""
    mirror = os.environ.get(MIRROR_VARIABLE, "")
    origin, remedy = Path(source.location), "fetch the shipped world with `dvc pull data`, or make it with `make world`"
    if source.kind == "mirror":
        remedy = f"correct {MIRROR_VARIABLE} or download.sources"
        if not mirror:
            raise wrong(source, f"{MIRROR_VARIABLE} is not set", f"set it to the folder that holds {origin}/")
        origin = mirror / origin
        _check_links(source, Path(mirror), [origin])
    elif origin.is_absolute() or ".." in origin.parts:
        raise DataError(f"source {source.name}: {origin} is not a folder of the project")
    if not origin.is_dir():
        raise wrong(source, f"no folder {source.location}", remedy)
    names = list(source.files) or _files_below(source, origin)
    if source.kind == "mirror":
        _check_links(source, Path(mirror), [origin / source.path_of(name) for name in names])
    shutil.rmtree(folder)
    for name in names:
        if not (origin / source.path_of(name)).is_file():
            raise wrong(source, f"{source.location} has no file {source.path_of(name)}", remedy)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin / source.path_of(name), folder / name)
    return names


def _files_below(source: Source, folder: Path) -> list[str]:
    """Every visible file; raises ``DataError`` for a link to a folder or to nothing, whose files would be missing."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    names = _visible(source, paths)
    for name in names:
        if paths[name].is_symlink() and not paths[name].is_file():
            raise wrong(source, f"{paths[name]} is a link to a folder or to nothing", "replace it by a copy")
    return [name for name in names if paths[name].is_file()]


def _check_links(source: Source, mirror: Path, paths: Iterable[Path]) -> None:
    """Raise ``DataError`` for a link that leaves the mirror, because it could name any file of this machine."""
    for path in paths:
        target = Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for a link to itself
        if not target.is_relative_to(mirror.resolve()):
            raise wrong(source, f"{path} leads out of the mirror, to {target}", "replace the link by a copy")


def _https(source: Source, folder: Path, settings: Download) -> list[str]:
    if not source.files:
        raise wrong(source, "an https source cannot be listed", "name its files in download.sources")
    base = "/".join(part.strip("/") for part in (source.location, source.revision) if part)
    for name in source.files:
        if _is_missing(folder / name, source.sha256_of(name)):
            fetch_file(
                f"{base}/{urllib.parse.quote(source.path_of(name))}", folder / name, folder / ".partial", settings
            )
    return list(source.files)


def _s3(source: Source, folder: Path) -> list[str]:
    store = open_store(source.location)
    names = list(source.files) or _visible(source, store.keys())
    for name in names:
        if _is_missing(folder / name, source.sha256_of(name)):
            store.fetch(source.path_of(name), folder / name)
    return names


def _dataset(source: Source, listing: Listing, folder: Path, settings: Download) -> list[str]:
    cache = folder / ".hub" / listing.revision  # a folder per commit: a branch may move between two runs
    names = list(source.files) or _visible(source, listing.sizes)
    for name in names:
        if _is_missing(folder / name, source.sha256_of(name)):
            (cache / source.path_of(name)).unlink(missing_ok=True)
    fetch_dataset(source, listing, cache, settings)
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.hardlink_to(cache / source.path_of(name))
    return names


def pin(path: Path, fetched: Mapping[str, Fetched]) -> list[str]:
    """Write revision and digests of the ``fetched`` sources into the file ``path``; returns the names that changed.

    Comments and the order of keys stay. Shipped sources are left out, because DVC pins them. Raises ``DataError`` if
    the file is not valid.
    """
    content = load_commented(path)
    before = {source.name: source for source in load_params(path).download.sources}
    changed = []
    for entry in content["download"]["sources"]:
        source = before[entry["name"]]
        if source.kind != "shipped" and source.name in fetched:
            _pin(entry, source, fetched[source.name])
            changed += [source.name] if Source.model_validate(dict(entry)) != source else []
    if changed:
        with atomic_file(path) as temporary:
            temporary.write_text(dump_commented(content, _WIDTH), encoding="utf-8")
            load_params(temporary)
    return changed


def _pin(entry: dict[str, Any], source: Source, fetched: Fetched) -> None:
    """Write the missing pins into the catalogue's entry; for a model, these are the files in the Hub's cache."""
    if entry["revision"] != fetched.revision:
        entry["revision"] = fetched.revision
    digests = {name: found["sha256"] for name, found in (fetched.cached or fetched.files).items()}
    if not source.files:
        entry["files"] = digests
        return
    for name, sha256 in digests.items():
        if source.path_of(name) != name:
            entry["files"][name]["sha256"] = sha256
        elif source.sha256_of(name) != sha256:
            entry["files"][name] = sha256
