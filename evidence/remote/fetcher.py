"""Objects of a remote, put into DVC's cache only if they have the md5 in their name.

DVC takes the bytes of a ``.dir`` object as they are. An edited one would make it install other files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from evidence.dvc.history import overlap
from evidence.dvc.stores import cache_of, object_file, object_key, parse_listing
from ground.hashing import digest_chunks
from ground.io import DataError, atomic_file, sha256_of
from ground.progress import Progress
from ground.remote import READERS, Store

_READ_ONLY = 0o444  # DVC protects the objects of its cache in this way


class Fetcher:
    """Copies objects from a store to the cache; ``sha256`` holds what records say about them, by md5."""

    def __init__(self, root: Path, store: Store, sha256: Mapping[str, str]) -> None:
        self.store, self.sha256 = store, sha256
        self.cache = cache_of(root)

    def provide(self, outs: Mapping[str, str], parts: Collection[str] = ()) -> int:
        """Get the objects of ``outs`` (md5 by path), with all files of folders, into the cache; returns their number.

        With ``parts``, only those files of folders that are one of these paths or below one. Raises ``DataError`` if an
        object is missing or does not have its digest, or a listing leaves its folder.
        """
        wanted = {md5: path for path, md5 in outs.items()}
        folders = {md5: path for md5, path in wanted.items() if md5.endswith(".dir")}
        self._install(folders)
        for md5, path in folders.items():
            content = object_file(self.cache, md5).read_bytes()
            if digest_chunks([content]).md5 != md5.removesuffix(".dir"):
                raise DataError(f"{object_file(self.cache, md5)}: was edited; it belongs to {path}. Delete it")
            for name, inner in parse_listing(content, f"the listing of {path}").items():
                if not parts or any(overlap(f"{path}/{name}", part) for part in parts):
                    wanted[inner] = f"{path}/{name}"
        self._install({md5: path for md5, path in wanted.items() if md5 not in folders})
        return len(wanted)

    def _install(self, wanted: Mapping[str, str]) -> None:
        missing = [(md5, path) for md5, path in wanted.items() if not object_file(self.cache, md5).is_file()]
        with ThreadPoolExecutor(READERS // 2) as pool, Progress("fetch", len(missing), "objects") as bar:
            for _ in pool.map(lambda item: self._fetch(*item), missing):
                bar.advance()

    def _fetch(self, md5: str, path: str) -> None:
        target, key = object_file(self.cache, md5), object_key(md5)
        with atomic_file(target) as temporary:
            with temporary.open("wb") as handle:
                found = digest_chunks(_written(self.store.chunks(key), handle))
            for kind, is_now, should_be in (
                ("md5", found.md5, md5.removesuffix(".dir")),
                ("sha256", found.sha256, self.sha256.get(md5, found.sha256)),
            ):
                if is_now != should_be:
                    raise DataError(
                        f"{self.store.url}/{key}: {kind} is {is_now}, expected {should_be}; it belongs to {path}. It "
                        "was changed in the remote and is not installed"
                    )
        target.chmod(_READ_ONLY)


def read_verified(store: Store, key: str, sha256: str) -> bytes:
    """The bytes of an object; raises ``DataError`` if their sha256 is different."""
    content = store.read(key)
    if (found := sha256_of(content)) != sha256:
        raise DataError(f"{store.url}/{key}: sha256 is {found}, expected {sha256}; it was changed in the remote")
    return content


def _written(chunks: Iterator[bytes], handle: IO[bytes]) -> Iterator[bytes]:
    """The pieces of a file, each of which is written first."""
    for chunk in chunks:
        handle.write(chunk)
        yield chunk
