"""The objects that a remote should have: what the locks, the published entries and the listings of folders name.

The records add sizes and sha256, which a lock does not name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evidence.dvc.history import MAIN_LOCK, Locked
from evidence.dvc.stores import object_key
from evidence.record.reading import Record
from evidence.remote.published import Entry
from ground.hashing import folder_md5

NEWEST = "the newest entry of the log"
Listing = Callable[[str], Mapping[str, str] | None]
"""The md5 of each file in the folder with a digest; ``None`` if its listing is missing or was edited."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One object: its md5 as in its name, the path that it is of, and who names it.

    ``size`` and ``sha256`` come from a record; they are ``None`` if no record names the object. ``required`` objects
    must exist.
    """

    md5: str
    path: str
    why: str
    size: int | None
    sha256: str | None
    required: bool

    @property
    def key(self) -> str:
        """The key of the object in a remote."""
        return object_key(self.md5)


def inventory(
    name: str,
    locked: Mapping[str, Locked],
    entries: list[Entry],
    records: Mapping[str, list[Record]],
    listing: Listing,
) -> dict[str, Expected]:
    """The objects of remote ``name`` by md5.

    The objects of the newest entry are required, as are the objects of the newest entry of a whole run and of ``.dvc``
    files that name the remote.
    """
    newest = [entries[-1], *[each for each in entries if not each.manifest.partial][-1:]] if entries else []
    known = recorded_files(records)
    found: dict[str, Expected] = {}

    def add(md5: str, path: str, why: str, required: bool) -> None:
        size, sha256 = known.get(md5, (None, None))
        if md5 in found:
            found[md5] = replace(found[md5], required=found[md5].required or required)
        else:
            found[md5] = Expected(md5, path, why, size, sha256, required)
        for inner, digest in ((listing(md5) if md5.endswith(".dir") else None) or {}).items():
            add(digest, f"{path}/{inner}", why, required)

    for entry in entries[::-1]:
        for path, out in entry.manifest.outs.items():
            why = NEWEST if entry is entries[-1] else f"entry {entry.number} of the log"
            if out.md5 not in found or entry in newest:
                add(out.md5, path, why, entry in newest)
    for stage in locked.values():
        for path, md5 in stage.outs.items():
            at = stage.remotes.get(path)
            if md5 and (at == name or (at is None and stage.cmd and stage.file == MAIN_LOCK)):
                add(md5, path, stage.file, at == name)
    return found


def recorded_files(records: Mapping[str, list[Record]]) -> dict[str, tuple[int, str]]:
    """Size and sha256 by md5 of every file that a record names."""
    files = (
        file
        for entry in _entries(records)
        for file in ([entry] if entry.get("files") is None else entry["files"].values())
    )
    return {file["md5"]: (file["size"], file["sha256"]) for file in files}


def recorded_listings(records: Mapping[str, list[Record]]) -> dict[str, dict[str, str]]:
    """The md5 of each file in every folder that a record names, if it agrees with the folder's digest."""
    found = {}
    for entry in _entries(records):
        files = {name: file["md5"] for name, file in sorted((entry.get("files") or {}).items())}
        if files and folder_md5(files) == entry["md5"]:
            found[entry["md5"]] = files
    return found


def _entries(records: Mapping[str, list[Record]]) -> Iterator[dict[str, Any]]:
    """The entry of each input and output in the intact records."""
    for record in (record for of_stage in records.values() for record in of_stage if record.is_intact):
        for kind in ("inputs", "outputs"):
            yield from record.content[kind].values()
