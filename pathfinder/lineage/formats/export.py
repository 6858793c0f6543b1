"""One text per format: the projections of a history, by the name of the format."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pathfinder.lineage.formats import Format
from pathfinder.lineage.formats.bom import bom
from pathfinder.lineage.formats.crate import crate
from pathfinder.lineage.formats.descriptions import card, croissant
from pathfinder.lineage.formats.lineage import Lineage
from pathfinder.lineage.formats.openlineage import events
from pathfinder.lineage.formats.prov import prov


def exported(lineage: Lineage, form: Format, base: str = "") -> str:
    """The history in a format, as text; the same records give the same bytes.

    ``base`` is the address under which the project folder is published; only a crate has a use for it. Raises
    ``DataError`` if the format needs something that the history does not have.
    """
    writers: dict[Format, Callable[[], str]] = {
        "crate": lambda: _json(crate(lineage, base)),
        "openlineage": lambda: "".join(f"{_line(event)}\n" for event in events(lineage)),
        "cyclonedx": lambda: _json(bom(lineage)),
        "croissant": lambda: _json(croissant(lineage)),
        "prov": lambda: _json(prov(lineage)),
        "card": lambda: card(lineage),
    }
    return writers[form]()


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
