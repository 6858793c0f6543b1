"""The figures of reports/tables.json and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pathfinder.core.io import DataError


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
    """The scores of every system, as the report's first table has them; empty for a file of another form."""
    results = tables.get("results") if isinstance(tables, Mapping) else None
    found = []
    for number, line in enumerate(results if isinstance(results, list) else ()):
        for key, score in line.items() if isinstance(line, Mapping) else ():
            if isinstance(score, Mapping) and isinstance(score.get("value"), (int, float)):
                pointer = f"/results/{number}/{key}"
                name = f"{line.get('system', number)}: {key}"
                found.append(_figure(tables, pointer, name, score))
    return found


def figure_at(tables: Any, pointer: str, where: str) -> Figure:
    """The figure under a JSON pointer; raises ``DataError`` if the file has no such value."""
    try:
        value = value_under(tables, pointer)
    except LookupError as error:
        raise DataError(f"{where}: no value at {pointer}; /results/0 is the first line of its results") from error
    known = next((figure for figure in figures(tables) if figure.pointer == pointer), None)
    return known or _figure(tables, pointer, pointer, value)


def value_under(tables: Any, pointer: str) -> Any:
    """The value under a JSON pointer (RFC 6901); raises ``LookupError`` if there is none."""
    value = tables
    for part in _parts(pointer):
        if isinstance(value, Mapping):
            value = value[part]
        elif isinstance(value, list) and part.isdigit():
            value = value[int(part)]
        else:
            raise LookupError(part)
    return value


def _figure(tables: Any, pointer: str, name: str, value: Any) -> Figure:
    origins = list(_origins(_origin_under(tables, pointer)))
    places = tuple(dict.fromkeys(place for each in origins for place in (*each["of"], *each.get("interval", ()))))
    how = ", ".join(dict.fromkeys(str(each["how"]) for each in origins))
    return Figure(pointer, name, _short(value), how, places)


def _origin_under(tables: Any, pointer: str) -> Any:
    """The origin of a value: the nearest object above it with a key ``origins`` has its shape."""
    parts = list(_parts(pointer))
    for depth in range(len(parts), -1, -1):
        try:
            owner = value_under(tables, "".join(f"/{_escaped(part)}" for part in parts[:depth]))
        except LookupError:
            continue
        if isinstance(owner, Mapping) and "origins" in owner:
            found = owner["origins"]
            for part in parts[depth:]:  # an origin of the whole is also that of its parts
                if isinstance(found, Mapping) and part in found:
                    found = found[part]
                elif isinstance(found, list) and part.isdigit() and int(part) < len(found):
                    found = found[int(part)]
            return found
    return None


def _origins(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every origin within a value of the shape of ``origins``."""
    if isinstance(value, Mapping):
        if isinstance(value.get("of"), list) and "how" in value:
            yield value
            return
        for inner in value.values():
            yield from _origins(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _origins(inner)


def _short(value: Any) -> str:
    if isinstance(value, Mapping) and isinstance(value.get("value"), (int, float)):
        interval = f" [{value['low']:.2f}, {value['high']:.2f}]" if {"low", "high"} <= value.keys() else ""
        return f"{value['value']:.2f}{interval}"
    if isinstance(value, (Mapping, list)):
        return f"{len(value)} values"
    return str(value)


def _parts(pointer: str) -> Iterator[str]:
    parts = pointer.split("/")[1:] if pointer else []
    yield from (part.replace("~1", "/").replace("~0", "~") for part in parts)


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
