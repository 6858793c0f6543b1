"""The manifest of the sources, which the download stage writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ground.manifest import read_manifest as read_manifest

MANIFEST = Path("artifacts/raw/manifest.json")


def downloaded_sources(root: Path = Path()) -> dict[str, dict[str, Any]]:
    """The result of ``read_manifest`` for the project in ``root``; empty if nothing has been downloaded."""
    return read_manifest(root / MANIFEST) if (root / MANIFEST).exists() else {}
