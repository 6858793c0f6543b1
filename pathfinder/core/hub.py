"""Pointer to a model in the Hub cache: its folder has no weights, only ``hub.json`` with repository and commit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from pathfinder.core.io import read_json, write_json

HUB_FILE = "hub.json"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A Hub repository at one commit."""

    repo: str
    revision: str


def write_hub_model(folder: Path, model: HubModel) -> None:
    """Make ``folder`` point to ``model``."""
    write_json(folder / HUB_FILE, asdict(model))


def read_hub_model(folder: Path) -> HubModel | None:
    """The model that ``folder`` points to, or ``None`` if the folder holds its model itself."""
    file = folder / HUB_FILE
    if not file.exists():
        return None
    pointer = read_json(file)
    return HubModel(pointer["repo"], pointer["revision"])
