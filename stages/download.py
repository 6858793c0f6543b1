"""Fetch every source of the catalogue, check its sha256, write a manifest with revisions and licences.

Reads   data (the shipped world) and whatever the catalogue names; params: download
Writes  artifacts/raw/<source>/…, artifacts/raw/manifest.json
Run     python -m stages.download

Files arrive in .pathfinder/download/ and move to artifacts/raw together, so an interrupted run goes on where it was.
``PATHFINDER_MIRROR`` names the root of sources of kind ``mirror``. Exit status 75: the network failed, try again.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pathfinder.core.io import atomic_folder, digest_of, write_json
from pathfinder.core.params import Download, load_params
from pathfinder.provenance.stage import stage
from pathfinder.sources.catalogue import MIRROR_VARIABLE, Place, fetch_source

RAW = Path("artifacts/raw")
WORK = Path(".pathfinder/download")


def fetch_all(params: Download, mirror: Path | None) -> dict[str, Any]:
    """Fetch every source into its work folder; returns the manifest."""
    manifest: dict[str, Any] = {}
    for source in params.sources:
        entry = source.model_dump(include={"kind", "location", "revision", "licence"})
        fetched = fetch_source(source, Place(work_folder(entry, source.name), params, mirror))
        manifest[source.name] = entry | {"revision": fetched.revision, "files": fetched.files}
        if source.kind == "hub" and fetched.revision != source.revision:
            moves = f"download: {source.name}: {source.revision or 'main'} of {source.location} can move; "
            print(f"{moves}revision: {fetched.revision} keeps what came now", file=sys.stderr)
    return manifest


def work_folder(entry: dict[str, Any], name: str) -> Path:
    """Where a source is gathered: another location or revision starts from nothing."""
    return WORK / digest_of({**entry, "name": name})[:16]


@stage
def main() -> None:
    """Run the stage."""
    params = load_params().download
    root = os.environ.get(MIRROR_VARIABLE)
    manifest = fetch_all(params, Path(root) if root else None)
    with atomic_folder(RAW) as raw:
        for source in params.sources:
            gathered = work_folder(source.model_dump(include={"kind", "location", "revision", "licence"}), source.name)
            for name in manifest[source.name]["files"]:
                target = raw / source.name / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (gathered / name).replace(target)
        write_json(raw / "manifest.json", manifest)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
