"""Pin the sources of params.yaml: write the commit ids and the sha256 of the files that a download fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pathfinder.core.commented_yaml import dump_commented, load_commented
from pathfinder.core.io import atomic_file
from pathfinder.core.params import Source, load_params
from pathfinder.sources.catalogue import Fetched

_WIDTH = 4096  # no line is wrapped


def pin(path: Path, fetched: Mapping[str, Fetched]) -> list[str]:
    """Write revision and digests of the ``fetched`` sources into the file ``path``; returns the names of those changed.

    Comments and the order of keys stay. Shipped sources are left out, because DVC pins them. Raises ``DataError`` if
    the file is not valid.
    """
    content = load_commented(path)
    before = {source.name: source for source in load_params(path).download.sources}
    changed = []
    for entry in content["download"]["sources"]:
        source = before[entry["name"]]
        files = _files(source, fetched[source.name]) if source.name in fetched else {}
        if source.kind != "shipped" and files:
            entry["revision"], entry["files"] = fetched[source.name].revision, files
            changed += [source.name] if Source.model_validate(dict(entry)) != source else []
    with atomic_file(path) as temporary:
        temporary.write_text(dump_commented(content, _WIDTH), encoding="utf-8")
        load_params(temporary)
    return changed


def _files(source: Source, fetched: Fetched) -> dict[str, Any]:
    """The list of files for the catalogue, with the digests of those fetched; of a model, the files in the cache."""
    digests = {name: entry["sha256"] for name, entry in (fetched.cached or fetched.files).items()}
    return {
        name: sha256 if source.path_of(name) == name else {"path": source.path_of(name), "sha256": sha256}
        for name, sha256 in digests.items()
    }
