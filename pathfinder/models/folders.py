"""Model folders: where their files are and what their config.json says. Nothing is loaded."""

from __future__ import annotations

from pathlib import Path

from pathfinder.core.hub import cached_folder, read_hub_model
from pathfinder.core.io import DataError, read_json


def resolve(folder: Path) -> Path:
    """The folder with the model's files: ``folder``, or its commit in the Hub's cache if ``folder`` points there.

    Needs no network. Raises ``DataError`` if it is not a model folder, or the cache lacks a file.
    """
    model = read_hub_model(folder)
    if model is not None:
        return cached_folder(folder, model)
    if not (folder / "config.json").exists():
        raise DataError(f"{folder}: no config.json; expected a model folder (the download stage makes them)")
    return folder


def resolve_part(folder: Path, name: str) -> Path | None:
    """The folder of a part of a model, such as ``lora`` or ``tokenizer``; ``None`` if the model has no such part.

    The part is a folder below ``folder`` or, with the model, in the Hub's cache. A part of ``folder`` may itself point
    to another repository (docs/baselines.md). Raises ``DataError`` as ``resolve`` does.
    """
    part = folder / name
    if (model := read_hub_model(part)) is not None:
        return cached_folder(part, model)
    inside = part if part.is_dir() else resolve(folder) / name
    return inside if inside.is_dir() else None


def stored_dtype(folder: Path) -> str:
    """The dtype of the files in ``folder`` by its config.json: "bfloat16" or "float32" (also for float16)."""
    config = read_json(resolve(folder) / "config.json")
    stored = (config.get("dtype") or config.get("torch_dtype")) if isinstance(config, dict) else None
    return "bfloat16" if stored == "bfloat16" else "float32"
