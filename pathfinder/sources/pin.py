"""Pin the sources of params.yaml: write the commit ids and the sha256 of the files that a download fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ground.io import atomic_file
from pathfinder.core.commented_yaml import dump_commented, load_commented
from pathfinder.core.params import Source, load_params
from pathfinder.sources.catalogue import Fetched

_WIDTH = 4096  # no line is wrapped


def pin(path: Path, fetched: Mapping[str, Fetched]) -> list[str]:
    """Write revision and digests of the ``fetched`` sources into the file ``path``; returns the names that changed.

    Comments and the order of keys stay. Shipped sources are left out, because DVC pins them. Raises ``DataError`` if
    the file is not valid.
    """
    content = load_commented(path)
    before = {source.name: source for source in load_params(path).download.sources}
    changed = []
    for entry in content["download"]["sources"]:
        source = before[entry["name"]]
        if source.kind != "shipped" and source.name in fetched:
            _pin(entry, source, fetched[source.name])
            changed += [source.name] if Source.model_validate(dict(entry)) != source else []
    if changed:
        with atomic_file(path) as temporary:
            temporary.write_text(dump_commented(content, _WIDTH), encoding="utf-8")
            load_params(temporary)
    return changed


def _pin(entry: dict[str, Any], source: Source, fetched: Fetched) -> None:
    """Write what is not pinned into the catalogue's entry; of a model, the files in the Hub's cache."""
    if entry["revision"] != fetched.revision:
        entry["revision"] = fetched.revision
    digests = {name: found["sha256"] for name, found in (fetched.cached or fetched.files).items()}
    if not source.files:
        entry["files"] = digests
        return
    for name, sha256 in digests.items():
        if source.path_of(name) != name:
            entry["files"][name]["sha256"] = sha256
        elif source.sha256_of(name) != sha256:
            entry["files"][name] = sha256
