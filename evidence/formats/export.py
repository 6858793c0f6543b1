"""One text per format: the projections of a history, by the name of the format."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from evidence.formats import Format
from evidence.formats.bom import bom
from evidence.formats.crate import crate
from evidence.formats.descriptions import card, croissant
from evidence.formats.lineage import Lineage
from evidence.formats.openlineage import events


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
        "card": lambda: card(lineage),
    }
    return writers[form]()


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
