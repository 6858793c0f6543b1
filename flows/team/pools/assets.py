"""Events about the outputs of stages in Prefect's event store: what was made, restored or up to date, and from what.

Each output is a Prefect asset, such as ``dvc://pathfinder-prm/artifacts/steps``. Prefect's engine emits such events
from the ``AssetContext`` of a task with ``@materialize``. This module makes a context per stage, because a stage that
is up to date has no task. The events repeat the lock and the records; nothing reads them to decide anything.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from prefect.assets import Asset
from prefect.assets.core import AssetProperties
from prefect.context import AssetContext
from prefect.states import Completed

from evidence.audit.records import record_of
from evidence.dvc.history import MAIN_LOCK, Locked, overlap, read_stages
from evidence.dvc.lock import dvc_lock
from evidence.dvc.stores import object_key
from evidence.record.identity import is_code
from flows.graph import Graph, profile_of
from flows.storage import absolute
from ground.io import PathfinderError

KEY = "dvc://pathfinder-prm/"
"""The beginning of an asset's key; the path in the project follows."""
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9._/@=-]")
_JSONL_BYTES = 1 << 24  # counting the lines of larger files would take seconds


class Assets:
    """The outputs of the stages of ``graph`` in the project ``root``, which are pushed to ``address``."""

    def __init__(self, root: Path, graph: Graph, address: str) -> None:
        self._root, self._graph = root, graph
        place = absolute(root, address.removeprefix("file://"))
        self._remote = place.rstrip("/") if "://" in place else Path(place).as_uri()
        self._always = {"profile": profile} if (profile := profile_of(root)) else {}

    def emit(self, names: Iterable[str], state: str) -> None:
        """Emit one event per output of the stages ``names``, whose outputs are current because of ``state``.

        A lock that cannot be read gives no events: they must not fail a stage that succeeded.
        """
        try:
            with dvc_lock(self._root):
                locked = read_stages(self._root / MAIN_LOCK, MAIN_LOCK)
        except PathfinderError:
            return
        for name in names:
            if name in locked:
                self.context(name, locked, state).emit_events(Completed())

    def context(self, name: str, locked: Mapping[str, Locked], state: str) -> AssetContext:
        """The context that emits the events of one stage."""
        stage, record = locked[name], record_of(self._root, locked[name])
        known = {"stage": name, "state": state, **self._always, **({"record": record.digest} if record else {})}
        inputs = {path: md5 for path, md5 in stage.deps.items() if not is_code(path)}
        made = {
            self._asset(path, md5): {**known, **self._about(stage, path, md5), "inputs": inputs}
            for path, md5 in stage.outs.items()
        }
        return AssetContext(
            direct_asset_dependencies=set(self._upstream(stage, locked)),
            downstream_assets=set(made),
            materialized_by="dvc",
            materialization_metadata={asset.key: about for asset, about in made.items()},
        )

    def _asset(self, path: str, md5: str) -> Asset:
        return Asset(key=key_of(path), properties=AssetProperties(name=path, url=self._object(md5)))

    def _object(self, md5: str) -> str:
        return f"{self._remote}/{object_key(md5)}"

    def _upstream(self, stage: Locked, locked: Mapping[str, Locked]) -> Iterator[Asset]:
        """The outputs of other stages that a stage reads, whole or in part, and the data that no stage makes."""
        producers = [locked[name] for name in self._graph.upstream.get(stage.name, ()) if name in locked]
        for path, md5 in stage.deps.items():
            if not is_code(path):
                outs = [(out, of) for each in producers for out, of in each.outs.items() if overlap(out, path)]
                yield from (self._asset(*pair) for pair in outs or [(path, md5)])

    def _about(self, stage: Locked, path: str, md5: str) -> dict[str, Any]:
        """The payload of an output's event; size, files and rows are left out if they are not known."""
        size, files = stage.sizes.get(path, (None, None))
        counts = {"size": size, "files": files, "rows": dict(rows_of(self._root / path))}
        known = {name: value for name, value in counts.items() if value}
        return {"path": path, "md5": md5, "object": self._object(md5), **known}


def key_of(path: str) -> str:
    """The key of the asset at a path of the project; characters that Prefect does not allow become ``_``."""
    return KEY + _NOT_IN_KEYS.sub("_", path)


def rows_of(path: Path) -> Iterator[tuple[str, int]]:
    """The name and rows of each table that is, or is below, ``path``: Parquet files, and JSON lines up to 16 MiB."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        name = file.relative_to(path).as_posix() if file != path else file.name
        with contextlib.suppress(OSError, pyarrow.ArrowInvalid):  # such a file has no rows to state
            if file.suffix == ".parquet":
                yield name, int(pyarrow.parquet.read_metadata(file).num_rows)
            elif file.suffix == ".jsonl" and file.stat().st_size <= _JSONL_BYTES:
                yield name, file.read_bytes().count(b"\n")
