"""The recorded history in the formats of other tools, and as a page."""

from __future__ import annotations

from typing import Literal

Format = Literal["crate", "openlineage", "cyclonedx", "croissant", "card"]
"""The formats of ``pathfinder lineage export``."""
