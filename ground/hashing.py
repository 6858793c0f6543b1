"""Content digests: md5, which DVC uses, and sha256, which the audit compares. One read of the bytes gives both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

_CHUNK = 1 << 18
_CACHE = "__pycache__"  # .dvcignore excludes it too


@dataclass(frozen=True, slots=True)
class Digest:
    """Digests of a path: ``md5`` as in DVC (``….dir`` for a folder), ``sha256``, bytes, files of a folder.

    ``links`` names the symbolic links in a folder, which its digests leave out.
    """

    md5: str
    sha256: str
    size: int
    files: dict[str, Digest]
    links: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        """True if the path is a folder."""
        return self.md5.endswith(".dir")

    def as_json(self) -> dict[str, object]:
        """A JSON value; the files of a folder by relative path."""
        value: dict[str, object] = {"md5": self.md5, "sha256": self.sha256, "size": self.size}
        if self.is_folder:
            value["files"] = {name: file.as_json() for name, file in self.files.items()}
        return value


def digest_file(path: Path) -> Digest:
    """Digest a file; raises ``FileNotFoundError`` if it does not exist."""
    with path.open("rb") as handle:
        return digest_chunks(iter(partial(handle.read, _CHUNK), b""))


def digest_path(path: Path, of_file: Callable[[Path], Digest] = digest_file) -> Digest:
    """Digest a file or a folder, each file with ``of_file``; raises ``FileNotFoundError`` if it does not exist.

    The md5 of a folder is the md5 of DVC's ``.dir`` object, the JSON list of its files sorted by path. Its sha256 is
    computed from the same list with sha256 instead of md5.
    """
    if not path.is_dir():
        return of_file(path)
    found = [file for file in path.rglob("*") if _CACHE not in file.parts]
    links = [file for file in found if file.is_symlink()]
    kept = (file for file in found if file.is_file() and not file.is_symlink())
    files = dict(sorted((file.relative_to(path).as_posix(), of_file(file)) for file in kept))
    md5 = folder_md5({name: digest.md5 for name, digest in files.items()})
    listing = [{"relpath": name, "sha256": digest.sha256} for name, digest in files.items()]
    sha256 = hashlib.sha256(json.dumps(listing, sort_keys=True).encode()).hexdigest()
    names = tuple(sorted(link.relative_to(path).as_posix() for link in links))
    return Digest(md5, sha256, sum(file.size for file in files.values()), files, names)


def digest_listing(files: dict[str, str], part: str) -> str:
    """The md5 that DVC computes for a path of a listing (md5 by file); empty if the listing has no such path."""
    below = {path.removeprefix(f"{part}/"): md5 for path, md5 in files.items() if path.startswith(f"{part}/")}
    return folder_md5(dict(sorted(below.items()))) if below else files.get(part, "")


def folder_md5(files: dict[str, str]) -> str:
    """The md5 of DVC's ``.dir`` object for files with these md5; they must be sorted by path."""
    listing = [{"md5": md5, "relpath": name} for name, md5 in files.items()]
    digest = hashlib.md5(json.dumps(listing, sort_keys=True).encode(), usedforsecurity=False)
    return f"{digest.hexdigest()}.dir"


def digest_chunks(chunks: Iterable[bytes]) -> Digest:
    """Digest the bytes of one file, given in pieces."""
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    for chunk in chunks:
        md5.update(chunk)
        sha256.update(chunk)
        size += len(chunk)
    return Digest(md5.hexdigest(), sha256.hexdigest(), size, {})


def md5_of(path: Path) -> str:
    """The md5 of a file's bytes, which names its object in a store; this takes half the time of ``digest_path``."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
