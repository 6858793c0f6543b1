"""The objects that a remote should have: what dvc.lock, the published entries and the listings of folders name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pathfinder.lineage.history import Locked, Record
from pathfinder.lineage.published import Entry

NEWEST = "the newest entry of the log"
Listing = Callable[[str], Mapping[str, str] | None]
"""The md5 of each file in the folder with a digest; ``None`` if its listing cannot be had."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One object: its md5 as in its name, the path that it is of, and who names it.

    ``size`` and ``sha256`` are those of the record, ``None`` if no record names the object. ``required`` objects must
    exist.
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
        return f"files/md5/{self.md5[:2]}/{self.md5[2:]}"


def inventory(
    name: str,
    locked: Mapping[str, Locked],
    entries: list[Entry],
    records: Mapping[str, list[Record]],
    listing: Listing,
) -> dict[str, Expected]:
    """The objects of remote ``name`` by md5.

    Those of the newest entry, of the newest entry of a whole run and of ``.dvc`` files that name the remote are
    required.
    """
    newest = [entries[-1], *[each for each in entries if not each.manifest.partial][-1:]] if entries else []
    known = dict(_recorded(records))
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
            if md5 and (at == name or (at is None and stage.cmd and stage.file == "dvc.lock")):
                add(md5, path, stage.file, at == name)
    return found


def _recorded(records: Mapping[str, list[Record]]) -> Iterator[tuple[str, tuple[int, str]]]:
    """Size and sha256 by md5 of every file that a record names; a listing has neither."""
    for record in (record for of_stage in records.values() for record in of_stage if record.is_intact):
        for kind in ("inputs", "outputs"):
            yield from _files(record.content[kind])


def _files(entries: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, str]]]:
    for entry in entries.values():
        if "files" in entry and entry["files"] is not None:
            yield from _files(entry["files"])
        else:
            yield entry["md5"], (entry["size"], entry["sha256"])
