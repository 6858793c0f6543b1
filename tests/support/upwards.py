"""The text that ``pathfinder lineage up`` prints."""

from __future__ import annotations

from pathlib import Path

from evidence.verbs.ways import way_back


def up(target: str, root: Path) -> str:
    """The lines about a target, each with its line end."""
    return "".join(f"{line}\n" for line in way_back(target, root).lines())
