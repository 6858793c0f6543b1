"""The manifest of downloaded sources, if the project has one: it is compared with the workspace, and described."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence.audit.findings import Finding
from evidence.audit.workspace import Workspace
from evidence.settings import SETTINGS
from ground.io import DataError
from ground.manifest import read_manifest

MANIFEST = Path(SETTINGS.sources)
RAW = MANIFEST.parent.as_posix() if SETTINGS.sources else ""
"""The out with the manifest and the sources, each in a folder with its name."""


def sources_of(root: Path) -> dict[str, dict[str, Any]]:
    """The sources by name; empty without a manifest. Raises ``DataError`` if it is not one."""
    return read_manifest(root / MANIFEST) if SETTINGS.sources and (root / MANIFEST).exists() else {}


def compared(workspace: Workspace) -> Iterator[Finding]:
    """Compare every source file, and the origin of shipped ones, with the manifest."""
    where = MANIFEST.as_posix()
    try:
        manifest = sources_of(workspace.root)
    except DataError as error:
        yield Finding(where, str(error).removeprefix(f"{workspace.root / MANIFEST}: "))
        return
    if not manifest:
        yield Finding(where, "is missing; get it with `dvc pull` or `dvc repro`", cause="missing")
    for name, source in manifest.items():
        folders = [f"{RAW}/{name}", *([source["location"]] if source["kind"] == "shipped" else [])]
        for path, entry in ((f"{folder}/{file}", e) for folder in folders for file, e in source["files"].items()):
            found = workspace.digest(path)
            if found is None:
                yield Finding(path, "is missing, but the manifest of sources lists it", cause="missing")
            elif found.sha256 != entry["sha256"]:
                message = f"sha256 is {found.sha256}, the manifest of sources has {entry['sha256']}"
                yield Finding(path, message, cause="bytes")


def lines_about(path: str, manifest: dict[str, dict[str, Any]]) -> list[str]:
    """The origin of the source that is at a path or contains it, and the sha256 of the source's files."""
    lines = []
    for name, source in manifest.items():
        folder = f"{RAW}/{name}"
        if path == folder or path.startswith(f"{folder}/"):
            at = f" at {source['revision']}" if source.get("revision") else ""
            lines.append(f"source    {source['kind']} {source['location']}{at}, licence {source['licence']}")
            lines += [
                f"            sha256 {entry['sha256']}  {entry['bytes']} bytes  {file}"
                for file, entry in source["files"].items()
                if path in (folder, f"{folder}/{file}")
            ]
    return lines
