"""The downloaded sources: their manifest, and models in the Hub's cache.

The folder of such a model has no weights, only ``hub.json`` with repository, commit and files. The cache is the
Hub client's own (HF_HOME, or HF_HUB_CACHE), so other tools find the same files.
"""

from __future__ import annotations

import importlib
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ground.io import DataError, read_json, write_json

MANIFEST = Path("artifacts/raw/manifest.json")
"""The manifest of the sources, which the download stage writes."""
HUB_FILE = "hub.json"
CARD = "README.md"
"""The card in the folder of a model."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A Hub repository at one commit, and the sha256 and size in bytes of each fetched file by name."""

    repo: str
    revision: str
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


def downloaded_sources(root: Path = Path()) -> dict[str, dict[str, Any]]:
    """The result of ``read_manifest`` for the project in ``root``; empty if nothing has been downloaded."""
    from ground.manifest import read_manifest  # `score` reads no manifest

    return read_manifest(root / MANIFEST) if (root / MANIFEST).exists() else {}


def is_commit(revision: str | None) -> bool:
    """True if a revision is a full commit id, which never moves."""
    return isinstance(revision, str) and _COMMIT.fullmatch(revision) is not None


def write_hub_model(folder: Path, model: HubModel) -> None:
    """Make ``folder`` point to ``model``."""
    write_json(folder / HUB_FILE, asdict(model))


def read_hub_model(folder: Path) -> HubModel | None:
    """The model that ``folder`` points to, or ``None`` if the folder holds its model itself.

    Raises ``DataError`` if the file names no commit.
    """
    file = folder / HUB_FILE
    if not file.exists():
        return None
    pointer = read_json(file)
    content = pointer if isinstance(pointer, dict) else {}
    repo, files = content.get("repo"), content.get("files", {})
    if not (isinstance(repo, str) and _REPOSITORY.fullmatch(repo)) or not is_commit(content.get("revision")):
        raise DataError(f"{file}: no repository with a full commit id; make it again with `dvc repro -f download`")
    if not isinstance(files, dict) or not all(map(_is_entry, files.values())):
        raise DataError(f"{file}: files have no sizes in bytes; make it again with `dvc repro -f download`")
    return HubModel(repo, content["revision"], files)


def _is_entry(about: Any) -> bool:
    return isinstance(about, dict) and type(about.get("bytes")) is int


def http_library() -> Any:
    """The HTTP module that the installed Hub client uses. The Hub client passes on its errors.

    It is requests in version 0 of the Hub client, and httpx or httpx2 in later ones.
    """
    from huggingface_hub.errors import HfHubHTTPError

    return importlib.import_module(HfHubHTTPError.__bases__[0].__module__.partition(".")[0])


def cached_file(model: HubModel, name: str) -> Path | None:
    """The file of the model's commit in the Hub's cache, or ``None`` if the cache lacks the file."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model.repo, name, revision=model.revision)
    return Path(found) if isinstance(found, str) else None


def cached_folder(folder: Path, model: HubModel) -> Path:
    """The folder in the Hub's cache that has every file of the model that ``folder`` points to. Needs no network.

    If several folders have every file, the smallest is returned. Raises ``DataError`` if a file is missing or its size
    differs from the fetched file's.
    """
    paths = {name: _intact(model, name) for name in list(model.files) or ["config.json"]}
    if lost := next((name for name, path in paths.items() if path is None), None):
        from huggingface_hub.constants import HF_HUB_CACHE

        raise DataError(
            f"{folder}: {lost} of {model.repo} at {model.revision} is not in the Hub cache {HF_HUB_CACHE}, or differs "
            "in size; fetch it with `python -m stages.download --models`, or set HF_HOME to the cache that has it"
        )
    return Path(os.path.commonpath([path.parent for path in paths.values() if path]))


def is_cached(folder: Path) -> bool:
    """True if the Hub's cache has the model that ``folder`` points to. Raises as ``read_hub_model``."""
    model = read_hub_model(folder)
    return model is not None and all(_intact(model, name) for name in model.files)


def _intact(model: HubModel, name: str) -> Path | None:
    """The cached file, if its size is the fetched file's."""
    path = cached_file(model, name)
    if path is None or (name in model.files and path.stat().st_size != model.files[name]["bytes"]):
        return None
    return path
