"""The identifiers in an export: of the project's own things, of licences and of packages."""

from __future__ import annotations

import uuid
from urllib.parse import quote

NAMESPACE = "https://pathfinder-prm.invalid/"
"""The prefix of every identifier that an export makes. It is a name, not an address (RFC 2606)."""
PROJECT = "PathFinder-PRM reproduction"
LICENCE = "Apache-2.0"
"""The licence of the project's code; each source has its own."""


def uri(kind: str, *names: str) -> str:
    """An identifier of this project for a thing of a kind: ``https://pathfinder-prm.invalid/stage/train%40full``."""
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
