"""The text that ``pathfinder lineage up`` prints."""

from __future__ import annotations

from pathlib import Path

from evidence.verbs.upwards import text_of, way_back


def up(target: str, root: Path) -> str:
    """The lines about a target, each with its line end."""
    return "".join(f"{line}\n" for line in text_of(way_back(target, root)))
