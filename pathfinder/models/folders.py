"""Model folders: where their files are and what their config.json says. Nothing is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ground.io import DataError, read_json
from pathfinder.core.hub import cached_folder, read_hub_model


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


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a model; raises ``DataError`` if it is no JSON object."""
    content = read_json(folder / "config.json")
    if not isinstance(content, dict):
        raise DataError(f"{folder / 'config.json'}: no JSON object; fetch the model's files again")
    return content


def longest_context(folder: Path) -> int:
    """The positions of the model in ``folder`` by its config.json; raises ``DataError`` if it names none."""
    value = read_config(resolve(folder)).get("max_position_embeddings")
    if type(value) is not int or value < 1:
        raise DataError(f"{folder}: config.json has max_position_embeddings {value!r:.80}; expected a positive integer")
    return value


def stored_dtype(folder: Path) -> str:
    """The dtype of the files in ``folder`` by its config.json: "bfloat16" or "float32" (also for float16)."""
    config = read_config(resolve(folder))
    stored = config.get("dtype") or config.get("torch_dtype")
    return "bfloat16" if stored == "bfloat16" else "float32"
