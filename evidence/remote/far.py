"""The remotes on other machines in one check: not read, read by their listing, or read byte by byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from evidence.audit.findings import Finding
from evidence.audit.published import Published
from evidence.dvc.history import Locked, Record
from evidence.dvc.objects import Objects
from evidence.dvc.stores import Store
from evidence.remote import mirror
from evidence.remote.reading import FarObjects

Remote = Literal["no", "quick", "full"]


class FarRemotes:
    """The remotes of one check.

    ``published`` is the evidence in their copies, which are refreshed first unless ``remote`` is ``no``.
    """

    def __init__(self, root: Path, stores: list[Store], keys: Mapping[str, bytes], remote: Remote) -> None:
        self.root, self.remote = root, remote
        self.stores = [store for store in stores if store.folder is None]
        self._opened = {store.name: mirror.opened(store) for store in self.stores} if remote != "no" else {}
        self._changed = [
            finding
            for store in self.stores
            if store.name in self._opened
            for finding in mirror.refresh(root, store, self._opened[store.name]).findings
        ]
        copies = [(store, mirror.folder_of(root, store)) for store in self.stores]
        self._copies = [Objects(store, folder, root) for store, folder in copies if folder.is_dir()]
        self.published = [Published(root, copy, keys) for copy in self._copies]
        kind = {"no": "evidence of remote {}", "quick": "remote {} (listing)", "full": "remote {}"}[remote]
        were_read = [copy.store for copy in self._copies] if remote == "no" else self.stores
        self.read = [kind.format(store.name) for store in were_read]

    def findings(self, locked: Mapping[str, Locked], records: Mapping[str, list[Record]]) -> Iterator[Finding]:
        """What has changed in the remotes, entries of their run caches that no record allows, and damaged objects."""
        yield from self._changed
        for copy in self._copies:
            yield from copy.runs(locked, records)
        if self.remote == "no":
            return
        entries = {published.objects.store.name: published.entries for published in self.published}
        for store in self.stores:
            far = FarObjects(self.root, store.name, self._opened[store.name], self.remote == "full")
            yield from far.findings(locked, entries.get(store.name, []), records)
