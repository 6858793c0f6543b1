"""Fetch the sources of the catalogue, check their sha256, and write a manifest with revisions and licences.

Reads   data (the shipped world) and the sources that the catalogue names; params: download
Writes  artifacts/raw/<source>/…, artifacts/raw/manifest.json
Run     python -m stages.download

Files arrive in .pathfinder/download/ and move to artifacts/raw together. An interrupted run resumes from that folder.
``PATHFINDER_MIRROR`` is the root of ``mirror`` sources. Exit status 75 means that the network failed; try again.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from pathfinder.core.io import atomic_folder, digest_of, write_json
from pathfinder.core.params import load_params
from pathfinder.provenance.stage import stage
from pathfinder.sources.catalogue import fetch_source

RAW = Path("artifacts/raw")
WORK = Path(".pathfinder/download")


@stage
def main() -> None:
    """Run the stage."""
    params = load_params().download
    manifest: dict[str, Any] = {}
    folders: dict[str, Path] = {}
    for source in params.sources:
        described = source.model_dump(include={"kind", "location", "revision", "licence"})
        # another location or revision has another work folder
        folders[source.name] = folder = WORK / digest_of(described | {"name": source.name})[:16]
        fetched = fetch_source(source, folder, params)
        manifest[source.name] = described | {"revision": fetched.revision, "files": fetched.files}
        if source.kind == "hub" and fetched.revision != source.revision:
            print(
                f"download: {source.name}: {source.revision or 'main'} of {source.location} can move; "
                f"revision: {fetched.revision} pins this download",
                file=sys.stderr,
            )
    with atomic_folder(RAW) as raw:
        for name, folder in folders.items():
            for file in manifest[name]["files"]:
                target = raw / name / file
                target.parent.mkdir(parents=True, exist_ok=True)
                (folder / file).replace(target)
        write_json(raw / "manifest.json", manifest)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
