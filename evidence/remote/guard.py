"""The guard before anything is taken from a remote: its log must be sound and signed by a trusted key.

An entry names its lock, which names the objects. Other objects, entries of the run cache and bytes with another digest
are not taken: DVC takes the bytes of a ``.dir`` object as they are, and an edited one makes it install other files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import IO

from evidence.audit.objects import Objects
from evidence.audit.trust import trusted_keys
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.pipeline import Stage
from evidence.dvc.stores import FOLDER, cache_of, object_file, object_key, parse_listing, remote_of, run_cache_key
from evidence.record.reading import Record
from evidence.record.signing import TRUSTED, key_id, own_public_keys
from evidence.remote import mirror
from evidence.remote.published import SEEN, VOID_TYPE, Entry, Published, remember, signature
from evidence.remote.reading import recorded_files
from evidence.settings import SETTINGS
from ground.hashing import digest_chunks
from ground.io import DataError, atomic_file, sha256_of, write_text
from ground.progress import Progress
from ground.remote import READERS, Store
from ground.settings import dump_yaml, read_yaml

_UNBROKEN = 1 << 20  # characters in a line: DVC breaks none
_READ_ONLY = 0o444  # DVC protects the objects of its cache in this way


class Guard:
    """The default remote of DVC after its log was verified; ``entries`` has the entries of trusted keys.

    ``keys`` adds files with public keys. Raises ``DataError`` if the log is not sound or its newest entry is not signed
    by a trusted key, and ``DataError`` or ``TransientError`` as the store does.
    """

    def __init__(self, root: Path, keys: Iterable[Path] = ()) -> None:
        self.root, self.remote = root, remote_of(root)
        self.keys = trusted_keys(root, keys)
        self.store = self.remote.opened()
        if self.remote.folder is None and (found := mirror.refresh(root, self.remote, self.store).findings):
            raise DataError(f"{found[0].where}: {found[0].message}; nothing is taken from the remote")
        self.published = Published(root, Objects(self.remote, root), self.keys)
        self.entries = self._verified()
        self.fetcher = Fetcher(root, self.store, chain(*map(dict.values, self.published.records.values())))
        self._locks: dict[str, dict[str, Locked]] = {}

    def entry_of(self, commit: str | None) -> Entry:
        """The newest entry of a whole run at a commit or, if there is none, at any commit.

        Raises ``DataError`` if there is no entry.
        """
        whole = [each for each in self.entries[::-1] if not each.manifest.partial]
        if not whole:
            raise DataError(
                f"remote {self.remote.name} ({self.remote.address}): no run of the whole pipeline was published there; "
                f"name another remote, or {SETTINGS.remedies.run}"
            )
        return next((each for each in whole if each.manifest.commit == commit), whole[0])

    def lock_file(self, entry: Entry) -> Path:
        """The run's lock, whose sha256 the entry names."""
        return self.published.folder / "locks" / f"{entry.manifest.dvc_lock}.lock"

    def locked(self, entry: Entry) -> dict[str, Locked]:
        """The stages of the run's lock."""
        if entry.digest not in self._locks:
            self._locks[entry.digest] = history.read_stages(
                self.lock_file(entry), f"{history.MAIN_LOCK} of entry {entry.number}"
            )
        return self._locks[entry.digest]

    def provide_stage(self, stage: Stage) -> bool:
        """Get the outs and the run-cache entry of a published run of this stage with today's inputs; False without one.

        DVC then restores the outs instead of running the stage. Raises ``DataError`` as ``Fetcher.provide`` does.
        """
        try:
            today = history.next_run(self.root, stage)
        except FileNotFoundError:
            return False
        wanted = (today.cmd, today.deps, today.params, today.outs.keys())
        for entry in self.entries[::-1]:
            if (run := self.locked(entry).get(stage.name)) is None:
                continue
            if (run.cmd, run.deps, run.params, run.outs.keys()) == wanted:
                self.fetcher.provide(run.outs)
                stated = read_yaml(self.lock_file(entry))["stages"][stage.name]  # the remote's run cache is not read
                write_text(self.fetcher.cache / run_cache_key(stated), dump_yaml(stated, width=_UNBROKEN))
                return True
        return False

    def _verified(self) -> list[Entry]:
        """The entries that a trusted key signed."""
        for finding in [*self.published.chain(), *self.keys.refused()]:
            if finding.level == "error":
                raise DataError(
                    f"{finding.where}: {finding.message}; nothing is taken from remote {self.remote.name} "
                    f"(`{SETTINGS.command} check --remote` lists every difference)"
                )
        if entries := self.published.entries:
            newest = entries[-1]
            if loss := self.keys.revoked(newest.signers):
                raise DataError(
                    f"remote {self.remote.name}: {loss}, and it signed the newest entry of the log; nothing is taken "
                    "from the remote. Publish again with a key that is valid"
                )
            if not newest.signers:
                key = newest.manifest.key
                told = f"is signed by key {key}, which is not trusted here" if key else "is not signed"
                raise DataError(
                    f"remote {self.remote.name}: the newest entry of its log {told}; nothing is taken from it. Compare "
                    f"{FOLDER}/keys/ in the remote with the key that the runner states, and name the key with "
                    f"--key FILE or commit it to {TRUSTED.as_posix()}/"
                )
            seen = {"number": newest.number, "entry": newest.digest}
            remember(self.root, SEEN, self.remote.address_from(self.root), seen)
        return [entry for entry in entries if entry.signers and not self.keys.revoked(entry.signers)]


def void(root: Path, number: int, name: str | None = None) -> tuple[str, str]:
    """Declare an unsigned entry of the log of the default remote (or ``name``) void; returns remote and key.

    The entry keeps its place, and a file in the folder of the signatures names it, signed with this user's key. To
    everyone who trusts the key, the entry counts as not written. Raises ``DataError`` if there is no such entry, if it
    is signed, or if this user has no usable key.
    """
    remote = remote_of(root, name)
    store = remote.opened()
    entry = store.read(f"{FOLDER}/log/{number:08d}.json")
    if f"{FOLDER}/{signature(entry)[0]}" in store.keys(f"{FOLDER}/signatures/"):
        raise DataError(f"entry {number} of remote {remote.name} is signed; only an unsigned one can be declared void")
    pem = own_public_keys()[0]
    key, content = signature(entry, VOID_TYPE, f".{key_id(pem)}.void.dsse")
    store.put(f"{FOLDER}/keys/{key_id(pem)}.pem", pem)
    store.put(f"{FOLDER}/{key}", content)
    return remote.address, key_id(pem)


def fetch_pointer(root: Path, pointer: str) -> None:
    """Get the content of a ``.dvc`` file into the cache: git holds the file, so it says which bytes are installed.

    Raises ``DataError`` as ``Fetcher.provide`` does.
    """
    found = history.read_pointer(root, root / pointer)
    for path, md5 in found.outs.items():
        store = remote_of(root, found.about(path).remote).opened()
        Fetcher(root, store).provide({path: md5})


def fetch_outs(root: Path, outs: Mapping[str, str], parts: Collection[str] = (), records: Iterable[Record] = ()) -> int:
    """Get outs, whose md5 a trusted party stated, from the default remote into the cache; see ``Fetcher.provide``.

    Each file also needs the sha256 that one of ``records`` has for its md5.
    """
    return Fetcher(root, remote_of(root).opened(), records).provide(outs, parts)


class Fetcher:
    """Copies objects from a store to the cache; an object that one of ``records`` names also needs its sha256."""

    def __init__(self, root: Path, store: Store, records: Iterable[Record] = ()) -> None:
        self.store, self.known = store, recorded_files(records)
        self.cache = cache_of(root)

    def provide(self, outs: Mapping[str, str], parts: Collection[str] = ()) -> int:
        """Get the objects of ``outs`` (md5 by path), with all files of folders, into the cache; returns their number.

        With ``parts``, only the files of folders that are at or below one of these paths. Raises ``DataError`` if an
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
                if not parts or any(history.overlap(f"{path}/{name}", part) for part in parts):
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
                ("sha256", found.sha256, self.known[md5][1] if md5 in self.known else found.sha256),
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
    """Write each piece of a file, then yield it."""
    for chunk in chunks:
        handle.write(chunk)
        yield chunk
