"""The disks that a run fills, and the models that they already hold."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pathfinder.core.hub import HubModel, cached_file
from pathfinder.core.params import Source
from pathfinder.sources.hub import WEIGHTS, cache_folder

HUB = "Hub cache"
"""The purpose whose bytes are on the disk of the Hub's cache; all others are on the disk of the project."""


@dataclass(frozen=True, slots=True)
class Room:
    """A disk that a run fills: a folder on it, its free bytes, and the bytes that the run still needs by purpose."""

    folder: Path
    free: float
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def needed(self) -> float:
        """The sum of all parts."""
        return sum(self.parts.values())

    @property
    def suffices(self) -> bool:
        """True if the run's files fit on the disk."""
        return self.needed <= self.free


def rooms(root: Path, sizes: Mapping[str, float]) -> list[Room]:
    """The disks of ``root`` and of the Hub's cache, one if they are the same, for the bytes of each purpose."""
    found: dict[int, Room] = {}
    for purpose, size in sizes.items():
        folder = _existing(cache_folder() if purpose == HUB else root)
        disk = folder.stat().st_dev
        before = found.get(disk) or Room(folder, float(shutil.disk_usage(folder).free))
        found[disk] = replace(before, parts={**before.parts, purpose: size})
    return list(found.values())


def fetched(source: Source) -> float:
    """Bytes of the source's weights in the Hub's cache, at its revision; 0 without its config.json."""
    config = cached_file(HubModel(source.location, source.revision or "main"), "config.json")
    return float(sum(file.stat().st_size for file in config.parent.glob(f"*{WEIGHTS}"))) if config else 0.0


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
