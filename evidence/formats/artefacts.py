"""Files and folders with the digests in a record, their media types, and the identifiers in an export."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from evidence.audit.sources import RAW
from evidence.settings import SETTINGS

_MEDIA_TYPES = {
    ".css": "text/css",
    ".csv": "text/csv",
    ".dvc": "application/yaml",
    ".dsse": "application/vnd.dsse+json",
    ".gz": "application/gzip",
    ".html": "text/html",
    ".jinja": "text/plain",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".lock": "text/plain",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".py": "text/x-python",
    ".toml": "application/toml",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
}
TITLE, LICENCE = SETTINGS.title or SETTINGS.name, SETTINGS.licence or "NOASSERTION"
"""The project's name in exports and the licence of its code; each source has its own."""
NAMESPACE = (SETTINGS.namespace or f"https://{SETTINGS.name}.invalid").rstrip("/") + "/"
"""The prefix of every identifier that an export makes. It is a name, not an address (RFC 2606)."""
MODELS = (SETTINGS.models, f"{RAW}/{SETTINGS.models}")
"""The folders of trained and downloaded models."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file or folder with the digests in a record; ``files`` holds the files of a folder by full path.

    The sha256 of a folder is the digest of the JSON list of its files (``ground.hashing``).
    """

    path: str
    md5: str
    sha256: str
    size: int
    files: Mapping[str, Artefact] = field(default_factory=dict)

    @property
    def is_folder(self) -> bool:
        """True for a folder."""
        return self.md5.endswith(".dir")

    @property
    def is_model(self) -> bool:
        """True for a model and for a file of a model."""
        return self.path.startswith(MODELS)

    def leaves(self) -> list[Artefact]:
        """The files of a folder, or the file itself."""
        return [*self.files.values()] if self.is_folder else [self]


def artefacts(entries: Mapping[str, Any]) -> dict[str, Artefact]:
    """The path entries of a record, sorted by path."""
    return {path: _artefact(path, entry) for path, entry in sorted(entries.items())}


def _artefact(path: str, entry: Mapping[str, Any]) -> Artefact:
    files = {f"{path}/{name}": _artefact(f"{path}/{name}", file) for name, file in (entry.get("files") or {}).items()}
    return Artefact(path, entry["md5"], entry["sha256"], entry["size"], files)


def media_type(path: str) -> str:
    """The media type of a file by its ending; ``application/octet-stream`` if unknown."""
    return _MEDIA_TYPES.get(PurePosixPath(path).suffix, "application/octet-stream")


def uri(kind: str, *names: str) -> str:
    """An identifier of this project for a thing of a kind: ``https://example.invalid/stage/train%40full``."""
    return NAMESPACE + "/".join([kind, *(quote(name, safe="/") for name in names)])


def uuid_of(*names: str) -> str:
    """A UUID (version 5) that depends only on the names."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, uri("id", *names)))


def licence_url(licence: str) -> str:
    """The SPDX page of a licence."""
    return f"https://spdx.org/licenses/{quote(licence, safe='.-+')}"


def package_url(name: str, version: str, kind: str = "pypi") -> str:
    """The package URL of a piece of software: ``pkg:pypi/torch@2.9.0``. It names no host.

    Source: https://github.com/package-url/purl-spec; ``kind`` is its type.
    """
    return f"pkg:{kind}/{quote(name)}@{quote(version)}"
