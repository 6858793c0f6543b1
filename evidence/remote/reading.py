"""The remotes on other machines in one check: not read, read by their listing, or read byte by byte.

By default only the listing is read: one request per thousand objects gives existence, size and the md5 that the server
computed. An object with a different md5 is read. If the server states no md5, only listings of folders are read.
``full`` reads every byte, in parallel and in pieces. The folder ``VERIFIED`` names the objects that an interrupted
check has verified: they are not read again while the remote's listing of them is the same.

The locks, the published entries and the listings of folders name the objects that a remote should have; the records add
sizes and sha256, which a lock does not name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from evidence.audit.findings import Finding, listed
from evidence.dvc.history import MAIN_LOCK, Locked
from evidence.dvc.stores import object_key, parse_listing, unlinked
from evidence.record.reading import Record
from evidence.remote.published import Entry
from evidence.settings import STATE
from ground.hashing import digest_chunks, folder_md5
from ground.io import DataError
from ground.progress import Progress
from ground.remote import READERS, Listed, Store


@dataclass(frozen=True, slots=True)
class Expected:
    """One object: the md5 in its name, the path that it belongs to, and the entry or file that names it.

    ``size`` and ``sha256`` come from a record; they are ``None`` if no record names the object. ``required`` objects
    must exist.
    """

    md5: str
    path: str
    why: str
    size: int | None
    sha256: str | None
    required: bool


def recorded_files(records: Iterable[Record]) -> dict[str, tuple[int, str]]:
    """Size and sha256 by md5 of every file that a record names."""
    found = {}
    for entry in _entries(records):
        for file in [entry] if entry.get("files") is None else entry["files"].values():
            found[file["md5"]] = file["size"], file["sha256"]
    return found


def recorded_listings(records: Iterable[Record]) -> dict[str, dict[str, str]]:
    """The md5 of each file in every folder that a record names, if it agrees with the folder's digest."""
    found = {}
    for entry in _entries(records):
        files = {name: file["md5"] for name, file in sorted((entry.get("files") or {}).items())}
        if files and folder_md5(files) == entry["md5"]:
            found[entry["md5"]] = files
    return found


def _entries(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """The entry of each input and output in the intact records."""
    for record in (record for record in records if record.is_intact):
        for kind in ("inputs", "outputs"):
            yield from record.content[kind].values()


VERIFIED = STATE / "verified"
_BATCH = 1000
Remote = Literal["no", "quick", "full"]


class FarObjects:
    """The objects of one remote."""

    def __init__(self, root: Path, name: str, store: Store, full: bool) -> None:
        self.root, self.name, self.store, self.full = root, name, store, full
        self._items = {"".join(item.key.split("/")[-2:]): item for item in store.listed("files/md5/")}
        self._listing = cache(self._read_listing)

    def findings(self, locked: Mapping[str, Locked], entries: list[Entry], records: list[Record]) -> Iterator[Finding]:
        """Every object that is missing, has a different size or different bytes."""
        suspects, unpushed = [], []
        for expected in self._wanted(locked, entries, records).values():
            item, plain = self._items.get(expected.md5), expected.md5.removesuffix(".dir")
            if item is None:
                if expected.required:
                    message = f"is missing; it belongs to {expected.path}, which {expected.why} names"
                    yield self._finding(expected, message)
                elif expected.why == MAIN_LOCK:
                    unpushed.append(expected.path)
            elif expected.size is not None and item.size != expected.size:
                message = f"has {item.size} bytes, the record of {expected.path} has {expected.size}"
                yield self._finding(expected, message)
            elif self.full or (item.md5 != plain and (item.md5 or plain != expected.md5)):
                suspects.append((expected, item))
        if unpushed:
            message = f"{MAIN_LOCK} names outs that were not pushed: {listed(dict.fromkeys(unpushed))}"
            yield Finding(f"remote {self.name}", message, "note")
        yield from self._read(suspects)

    def _wanted(self, locked: Mapping[str, Locked], entries: list[Entry], records: list[Record]) -> dict[str, Expected]:
        """The objects of the remote by md5.

        The objects of the newest entry are required, as are the objects of the newest entry of a whole run and of
        ``.dvc`` files that name the remote.
        """
        newest = [entries[-1], *[each for each in entries if not each.manifest.partial][-1:]] if entries else []
        known, folders = recorded_files(records), recorded_listings(records)
        found: dict[str, Expected] = {}

        def add(md5: str, path: str, why: str, required: bool) -> None:
            size, sha256 = known.get(md5, (None, None))
            if md5 in found:
                found[md5] = replace(found[md5], required=found[md5].required or required)
            else:
                found[md5] = Expected(md5, path, why, size, sha256, required)
            files = (folders.get(md5) or self._listing(md5) or {}) if md5.endswith(".dir") else {}
            for inner, digest in files.items():
                add(digest, f"{path}/{inner}", why, required)

        for entry in entries[::-1]:
            for path, out in entry.manifest.outs.items():
                why = "the newest entry of the log" if entry is entries[-1] else f"entry {entry.number} of the log"
                if out.md5 not in found or entry in newest:
                    add(out.md5, path, why, entry in newest)
        for stage in locked.values():
            for path, md5 in stage.outs.items():
                at = stage.about(path).remote
                if md5 and (at == self.name or (at is None and stage.cmd and stage.file == MAIN_LOCK)):
                    add(md5, path, stage.file, at == self.name)
        return found

    def _read(self, suspects: list[tuple[Expected, Listed]]) -> Iterator[Finding]:
        """Read objects and compare their bytes; ``VERIFIED`` has the good ones until all have been read."""
        verified = unlinked(self.root, VERIFIED / f"{self.name}.jsonl")  # a line that was cut names no object
        known = set(verified.read_text(encoding="utf-8").splitlines()) if self.full and verified.exists() else set()
        left = [pair for pair in suspects if _line(pair[1]) not in known]
        work = iter(left)
        from concurrent.futures import ThreadPoolExecutor  # slow to load; only remotes on other machines need it

        with ThreadPoolExecutor(READERS // 2) as pool, Progress(f"remote {self.name}", len(suspects), "objects") as bar:
            bar.resume(len(suspects) - len(left))
            while batch := list(islice(work, _BATCH)):
                for (_, item), finding in zip(batch, pool.map(lambda pair: self._compare(*pair), batch), strict=True):
                    bar.advance()
                    if finding is not None:
                        yield finding
                    elif self.full:
                        verified.parent.mkdir(parents=True, exist_ok=True)
                        with verified.open("a", encoding="utf-8") as handle:
                            handle.write(f"{_line(item)}\n")
        if self.full:
            verified.unlink(missing_ok=True)

    def _compare(self, expected: Expected, item: Listed) -> Finding | None:
        found = digest_chunks(self.store.chunks(item.key))
        if found.md5 != expected.md5.removesuffix(".dir"):
            message = f"md5 is {found.md5}, not the one in its name; it belongs to {expected.path}. Push it again"
            return self._finding(expected, message)
        if expected.sha256 is not None and found.sha256 != expected.sha256:
            message = f"sha256 is {found.sha256}, the record of {expected.path} has {expected.sha256}"
            return self._finding(expected, message)
        return None

    def _read_listing(self, md5: str) -> Mapping[str, str] | None:
        """The files of a folder from its object in the remote; ``None`` if it is missing or was edited."""
        if item := self._items.get(md5):
            content = b"".join(self.store.chunks(item.key))
            if digest_chunks([content]).md5 == md5.removesuffix(".dir"):
                with suppress(DataError):  # it has the md5 in its name, so a run pushed it in this form
                    return parse_listing(content, item.key)
        return None

    def _finding(self, expected: Expected, message: str) -> Finding:
        return Finding(f"remote {self.name} {object_key(expected.md5)}", message, cause="object")


def _line(item: Listed) -> str:
    """An object in ``VERIFIED``; the stamp changes when it is written again."""
    return json.dumps([item.key, item.size, item.stamp])
