"""Fetch the sources of the catalogue, check their sha256, and write a manifest with revisions and licences.

Reads   data (the shipped world) and the sources that the catalogue names; params: download
Writes  artifacts/raw/<source>/…, artifacts/raw/manifest.json
Run     python -m stages.download

Files arrive in .pathfinder/download/ and move to artifacts/raw together. An interrupted run resumes from that folder.
``PATHFINDER_MIRROR`` is the root of ``mirror`` sources. Exit status 75 means that the network failed; try again.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pathfinder.core.io import atomic_folder, digest_of, write_json
from pathfinder.core.params import Download, Source, load_params
from pathfinder.provenance.stage import stage
from pathfinder.sources.catalogue import MIRROR_VARIABLE, Destination, fetch_source

RAW = Path("artifacts/raw")
WORK = Path(".pathfinder/download")


def fetch_all(params: Download, mirror: Path | None) -> dict[str, Any]:
    """Fetch every source into its work folder; returns the manifest."""
    manifest: dict[str, Any] = {}
    for source in params.sources:
        fetched = fetch_source(source, Destination(work_folder(source), params, mirror))
        manifest[source.name] = described(source) | {"revision": fetched.revision, "files": fetched.files}
        if source.kind == "hub" and fetched.revision != source.revision:
            print(
                f"download: {source.name}: {source.revision or 'main'} of {source.location} can move; "
                f"revision: {fetched.revision} pins this download",
                file=sys.stderr,
            )
    return manifest


def described(source: Source) -> dict[str, Any]:
    """The fields of the catalogue that the manifest repeats."""
    return source.model_dump(include={"kind", "location", "revision", "licence"})


def work_folder(source: Source) -> Path:
    """The folder to collect a source in; another location or revision has another folder."""
    return WORK / digest_of(described(source) | {"name": source.name})[:16]


@stage
def main() -> None:
    """Run the stage."""
    params = load_params().download
    root = os.environ.get(MIRROR_VARIABLE)
    manifest = fetch_all(params, Path(root) if root else None)
    with atomic_folder(RAW) as raw:
        for source in params.sources:
            for name in manifest[source.name]["files"]:
                target = raw / source.name / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (work_folder(source) / name).replace(target)
        write_json(raw / "manifest.json", manifest)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
