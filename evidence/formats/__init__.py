"""The recorded history in the formats of other tools, and as a page: one text per format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from evidence.formats.lineage import Lineage

Format = Literal["crate", "openlineage", "cyclonedx", "croissant", "card", "documentation"]
"""The formats of ``export``."""


def exported(lineage: Lineage, form: Format, base: str = "") -> str:
    """The history in a format, as text; the same records give the same bytes.

    ``base`` is the address under which the project folder is published; only a crate uses it. Raises ``DataError`` if
    the format needs something that the history does not have.
    """
    from evidence.formats import bom, crate, descriptions, openlineage

    match form:
        case "card":
            return descriptions.card(lineage)
        case "documentation":
            return descriptions.documentation(lineage)
        case "openlineage":
            return "".join(f"{_json(event)}\n" for event in openlineage.events(lineage))
        case "crate":
            content = crate.crate(lineage, base)
        case "cyclonedx":
            content = bom.bom(lineage)
        case "croissant":
            content = descriptions.croissant(lineage)
    return _json(content, indent=1) + "\n"


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
