"""``pathfinder.json``: the description of a trained PRM in its folder."""

from __future__ import annotations

from pathlib import Path

from ground.io import DataError, read_json
from pathfinder.core.prompts import VARIANTS, Variant

MODEL_FILE = "pathfinder.json"


def variant_of(folder: Path) -> Variant:
    """The variant of the PRM in ``folder``; raises ``DataError`` if its description names an unknown one."""
    described = folder / MODEL_FILE
    if not described.exists():
        return VARIANTS["full"]  # a published checkpoint has no such file
    content = read_json(described)
    name = content.get("variant") if isinstance(content, dict) else None
    if not isinstance(name, str) or name not in VARIANTS:
        raise DataError(f"{described}: unknown variant {name!r:.80}; expected one of {', '.join(VARIANTS)}")
    return VARIANTS[name]
