"""What a trained PRM's folder says about itself: ``pathfinder.json``."""

from __future__ import annotations

from pathlib import Path

from pathfinder.core.io import DataError, read_json
from pathfinder.core.prompts import VARIANTS, Variant

MODEL_FILE = "pathfinder.json"


def variant_of(folder: Path) -> Variant:
    """The variant that a PRM's folder names."""
    described = folder / MODEL_FILE
    if not described.exists():
        return VARIANTS["full"]  # a published checkpoint carries no description of ours
    name = read_json(described).get("variant")
    if name not in VARIANTS:
        raise DataError(f"{described}: unknown variant {name!r}; expected one of {', '.join(VARIANTS)}")
    return VARIANTS[name]
