"""Events about the outputs of stages in Prefect's event store: what was made, restored or up to date, and from what.

Each output is a Prefect asset, such as ``dvc://pathfinder-prm/artifacts/steps``. Prefect's engine emits such events
from the ``AssetContext`` of a task with ``@materialize``. This module makes a context per stage, because a stage that
is up to date has no task. The events repeat the lock and the records; nothing reads them to decide anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

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
            self._asset(path, md5): {
                **known,
                "path": path,
                "md5": md5,
                "object": self._object(md5),
                "size": stage.sizes.get(path, (None, None))[0],
                "inputs": inputs,
            }
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


def key_of(path: str) -> str:
    """The key of the asset at a path of the project; characters that Prefect does not allow become ``_``."""
    return KEY + _NOT_IN_KEYS.sub("_", path)
