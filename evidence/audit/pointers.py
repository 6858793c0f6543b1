"""Values in JSON files by pointer (RFC 6901), and the origins of the figures in a JSON file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ground.io import DataError

_NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.(\d+))?")
_TIMES = re.compile(r"(?P<rest>.*), times 100|(?P<factor>\d+) times the copy")


def parts_of(pointer: str) -> list[str]:
    """The keys of a pointer; raises ``DataError`` if its form is wrong."""
    if pointer and not pointer.startswith("/"):
        raise DataError(f"#{pointer}: not a JSON pointer; it is empty or starts with / (RFC 6901)")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def value_at(content: Any, pointer: str, name: str) -> Any:
    """The value under a pointer; raises a ``DataError`` that names the parts that exist."""
    place = ""
    for part in parts_of(pointer):
        inner = dict(_items(content))
        if part not in inner:
            known = ", ".join([*inner][:12]) + (", …" if len(inner) > 12 else "")
            raise DataError(f"{name}#{place}: has no {part!r}; it has {known or 'no parts'}")
        content = inner[part]
        place += f"/{_escaped(part)}"
    return content


def origins_of(content: Any, pointer: str = "") -> dict[str, dict[str, Any]]:
    """The origins at, above and below a pointer of a file's content, by the pointer of the figure.

    The key ``origins`` of an object has the shape of the object. An object with ``how`` and ``of`` is the origin of
    everything at and below its place.
    """
    wanted, found = parts_of(pointer), {}
    for place, origin in _all_origins(content, ()):
        short = min(len(place), len(wanted))
        if list(place[:short]) == wanted[:short]:
            found["".join(f"/{_escaped(part)}" for part in place)] = origin
    return found


def places_of(origins: Iterable[Mapping[str, Any]]) -> list[str]:
    """The places (``path#pointer``) that figures, or their intervals, were made of, each once."""
    return list(dict.fromkeys(str(place) for each in origins for place in (*each["of"], *each.get("interval", ()))))


def files_of(origins: Iterable[Mapping[str, Any]]) -> list[str]:
    """The files of these places, each once."""
    return list(dict.fromkeys(place.partition("#")[0] for place in places_of(origins)))


def recomputed(how: str, values: list[Any]) -> list[float] | None:
    """The figures that a text must show if they were made from these values in this way; ``None`` if it is unknown."""
    flat = [number for value in values for number in _numbers(value)]
    if how in ("copy", "copies"):
        return flat or None
    if how == "sum":
        return [sum(flat)]
    if how == "mean" and flat:
        return [sum(flat) / len(flat)]
    if how == "difference" and len(flat) == 2:
        return [flat[0] - flat[1]]
    if (match := _TIMES.fullmatch(how)) is None:
        return None
    if match["factor"]:
        return [int(match["factor"]) * number for number in flat]
    inner = recomputed(match["rest"], values)
    return None if inner is None else [100 * value for value in inner]


def shows(text: Any, figure: float) -> bool:
    """True if a printed text, or a number, has this figure, rounded to the printed digits."""
    if isinstance(text, (int, float)):
        return abs(float(text) - figure) <= 1e-9 * max(1.0, abs(figure))
    for match in _NUMBER.finditer(str(text)):
        digits = len(match[1] or "")
        if match[0].replace(",", "").lstrip("+") == f"{figure:.{digits}f}":
            return True
    return False


def _all_origins(content: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for part, inner in _items(content):
        if part == "origins" and isinstance(content, Mapping):
            yield from _mirrored(inner, place)
        else:
            yield from _all_origins(inner, (*place, part))


def _mirrored(origins: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if isinstance(origins, Mapping) and {"how", "of"} <= origins.keys():
        yield place, dict(origins)
    else:
        for part, inner in _items(origins):
            yield from _mirrored(inner, (*place, part))


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)
    for _, inner in _items(value):
        yield from _numbers(inner)


def _items(content: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(content, Mapping):
        yield from ((str(key), inner) for key, inner in content.items())
    elif isinstance(content, list):
        yield from ((str(place), inner) for place, inner in enumerate(content))


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
