"""DVC's cache and remotes as the audit reads them: objects named by their md5, and the cache of whole runs."""

from __future__ import annotations

import configparser
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, ValidationError

from evidence.settings import SETTINGS, STATE, Form, Md5
from ground import remote as sources
from ground.hashing import md5_of
from ground.io import DataError, open_bytes, parse_json, sha256_of

FOLDER = SETTINGS.name
"""The folder in a remote with the publications of runs: see ``evidence.remote.published``."""
EVIDENCE = STATE / "evidence"
"""Copies of the published files of remotes on other machines, by the name of the remote."""


def _inside(path: str) -> str:
    """Refuse a path that leaves the folder, or that no file can have."""
    parts = PurePosixPath(path).parts
    path.encode()
    if not path.strip() or "\0" in path or ".." in parts or path.startswith("/"):
        raise ValueError(f"{path!r:.80} is not a path below the folder")
    return path


class ListedFile(Form):
    """One file of a folder in a ``.dir`` object."""

    md5: Md5
    relpath: Annotated[str, AfterValidator(_inside)]


_LISTING = TypeAdapter(list[ListedFile])


@dataclass(frozen=True, slots=True)
class Store:
    """DVC's cache (``name`` is ``cache``) or a remote; ``folder`` is ``None`` if it is not on this machine.

    ``endpoint`` is the S3 server that DVC's configuration names; empty for AWS.
    """

    name: str
    address: str
    folder: Path | None
    is_default: bool = False
    endpoint: str = ""

    def here(self, root: Path) -> Path:
        """The folder on this machine with the publications of runs: the store itself, or the copies of a far one."""
        return self.folder or root / EVIDENCE / self.name

    def opened(self) -> sources.Store:
        """The objects, by key; raises ``DataError`` for a kind of store that only DVC knows."""
        return sources.open_store(str(self.folder or self.address.rstrip("/")), self.endpoint)

    def address_from(self, root: Path) -> str:
        """The address as this machine remembers it: a folder inside the project has a relative address."""
        if self.folder is None:
            return self.address
        inside = self.folder.is_relative_to(root.resolve())
        return self.folder.relative_to(root.resolve()).as_posix() if inside else str(self.folder)


def stores(root: Path) -> list[Store]:
    """DVC's cache and every remote of DVC's configuration: the machine's, the user's and the project's.

    Raises ``DataError`` if a file of DVC's configuration cannot be parsed, or if the name of a remote is a path.
    """
    config = configparser.ConfigParser(interpolation=None)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    folders = [
        Path(os.environ.get("DVC_SYSTEM_CONFIG_DIR") or "/etc/xdg/dvc"),
        Path(os.environ.get("DVC_GLOBAL_CONFIG_DIR") or Path(home, "dvc")),
        root / ".dvc",
    ]
    try:
        config.read([*(folder / "config" for folder in folders), root / ".dvc" / "config.local"], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise DataError(f".dvc/config: cannot be parsed ({' '.join(str(error).split())}); restore it") from error
    base = (root / ".dvc").resolve()
    cache = config.get("cache", "dir", fallback="cache")
    found = [Store("cache", cache, base / os.path.expanduser(cache))]
    for section in config.sections():
        url = config.get(section, "url", fallback="")
        if "remote" in section and url:
            name = section.split('"')[1] if section.count('"') == 2 else section
            is_far = "://" in url  # on another machine
            if is_far and ("/" in name or not name.strip(".")):
                raise DataError(f".dvc/config: {name!r:.80} cannot name a folder of copies; rename this remote")
            folder = None if is_far else (base / os.path.expanduser(url)).resolve()
            is_default = name == config.get("core", "remote", fallback=None)
            endpoint = config.get(section, "endpointurl", fallback="")
            found.append(Store(name, sources.from_dvc(url, endpoint), folder, is_default, endpoint))
    return found


def unlinked(root: Path, place: Path) -> Path:
    """A place in the folder of all evidence; raises ``DataError`` if a link there leads elsewhere."""
    path = root / place
    if os.path.realpath(path) != os.path.join(os.path.realpath(root / STATE), place.relative_to(STATE)):
        raise DataError(f"{path}: a symbolic link leads out of {STATE}; remove the link")
    return path


def remote_of(root: Path, name: str | None = None) -> Store:
    """The remote with this name, or the default one; raises ``DataError`` if there is none."""
    for each in (store for store in stores(root) if store.name != "cache"):
        if each.name == name or (name is None and each.is_default):
            return each
    raise DataError(f".dvc/config: no remote {name or 'is the default'}; `dvc remote list` shows the remotes")


def cache_of(root: Path) -> Path:
    """The folder of DVC's cache; raises ``DataError`` as ``stores`` does."""
    return next(each.folder for each in stores(root) if each.name == "cache" and each.folder is not None)


def object_stores(root: Path) -> Iterator[Path]:
    """The folders of the cache and of every remote on this machine."""
    return (store.folder for store in stores(root) if store.folder is not None)


def object_key(md5: str) -> str:
    """The place of the object with this md5 in a cache or a remote, relative to its folder or address."""
    return f"files/md5/{md5[:2]}/{md5[2:]}"


def object_file(store: Path, md5: str) -> Path:
    """The object with this md5 in a cache or a remote on this machine."""
    return store / object_key(md5)


def read_listing(file: Path) -> dict[str, str]:
    """The md5 of each file in a ``.dir`` object; raises ``DataError`` if it is not a listing or names a file twice."""
    with open_bytes(file) as handle:
        return parse_listing(handle.read(), str(file))


def parse_listing(content: bytes, name: str) -> dict[str, str]:
    """The md5 of each file in the content of a ``.dir`` object; raises ``DataError`` with ``name`` as above."""
    try:
        entries = _LISTING.validate_python(parse_json(content, name))
    except ValidationError as error:
        first = error.errors()[0]
        row = f" row {int(first['loc'][0]) + 1}:" if first["loc"] else ""
        raise DataError(f"{name}:{row} {first['msg']}; expected the listing of a folder") from error
    files = {entry.relpath: entry.md5 for entry in entries}
    if len(files) < len(entries):
        raise DataError(f"{name}: lists a file twice; restore the object from another store")
    return files


def listing_of(folders: list[Path], md5: str) -> dict[str, str]:
    """The files of the folder with this md5, from the first store that has the listing undamaged; empty if none has."""
    for folder in folders if md5.endswith(".dir") else ():
        file = object_file(folder, md5)
        if file.is_file() and f"{md5_of(file)}.dir" == md5:
            return read_listing(file)
    return {}


def run_cache_key(entry: Mapping[str, Any]) -> str:
    """The place of the lock entry of a run, relative to DVC's cache: by the inputs, then by the whole entry."""
    stated = _without_sizes(entry)
    inputs = _json_digest({**stated, "outs": [out["path"] for out in stated.get("outs", ())]})
    return f"runs/{inputs[:2]}/{inputs}/{_json_digest(stated)}"


def _without_sizes(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_sizes(inner) for key, inner in value.items() if key not in ("size", "nfiles")}
    return [_without_sizes(inner) for inner in value] if isinstance(value, list) else value


def _json_digest(value: Any) -> str:
    return sha256_of(json.dumps(value, sort_keys=True).encode())


def run_cache_entries(folder: Path) -> Iterator[Path]:
    """The run-cache entries of a cache or a remote; each is the lock entry of one run."""
    return (path for path in sorted(folder.glob("runs/*/*/*")) if path.is_file())
