"""The figures of a JSON file of results as the page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evidence.audit.pointers import origins_of, parts_of, value_at

Origins = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: its JSON pointer, its name, its value, and the places (``path#pointer``) it was made from."""

    pointer: str
    name: str
    value: str
    how: str = ""
    places: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the places, each once."""
        return tuple(dict.fromkeys(place.partition("#")[0] for place in self.places))


def figures(tables: Any) -> list[Figure]:
    """The scores of every system, as the report's first table has them; empty for a file without such a table."""
    results = tables.get("results") if isinstance(tables, Mapping) else None
    origins = origins_of(tables, "/results")
    return [
        _figure(origins, f"/results/{number}/{key}", f"{line.get('system', number)}: {key}", score)
        for number, line in enumerate(results if isinstance(results, list) else ())
        for key, score in (line.items() if isinstance(line, Mapping) else ())
        if isinstance(score, Mapping) and isinstance(score.get("value"), (int, float))
    ]


def figure_at(tables: Any, pointer: str, where: str) -> Figure:
    """The figure under a JSON pointer; raises ``DataError`` as ``pointers.value_at`` does."""
    value = value_at(tables, pointer, where)
    known = next((figure for figure in figures(tables) if figure.pointer == pointer), None)
    return known or _figure(origins_of(tables, pointer), pointer, pointer or where, value)


def _figure(origins: Origins, pointer: str, name: str, value: Any) -> Figure:
    """The figure with all origins at, above and below its pointer."""
    wanted = parts_of(pointer)
    pairs = ((parts_of(place), origin) for place, origin in origins.items())
    found = [origin for place, origin in pairs if all(a == b for a, b in zip(place, wanted, strict=False))]
    places = dict.fromkeys(place for origin in found for place in (*origin["of"], *origin.get("interval", ())))
    how = ", ".join(dict.fromkeys(str(origin["how"]) for origin in found))
    return Figure(pointer, name, _short(value), how, tuple(map(str, places)))


def _short(value: Any) -> str:
    if isinstance(value, Mapping) and isinstance(value.get("value"), (int, float)):
        interval = f" [{value['low']:.2f}, {value['high']:.2f}]" if {"low", "high"} <= value.keys() else ""
        return f"{value['value']:.2f}{interval}"
    if isinstance(value, (Mapping, list)):
        return f"{len(value)} values"
    return str(value)
