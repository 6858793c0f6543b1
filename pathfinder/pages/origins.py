"""Texts of a page that know where their figures come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Origin:
    """The files and values that a figure was made of.

    ``of`` names files, or values in JSON files as ``path#pointer`` (RFC 6901), and ``how`` says what was done with
    them: ``copy``, ``mean``, ``sum`` or words. ``interval`` names what only the figure's interval depends on.
    """

    how: str
    of: tuple[str, ...]
    interval: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files, each once."""
        return tuple(dict.fromkeys(place.partition("#")[0] for place in (*self.of, *self.interval)))

    def as_json(self) -> dict[str, Any]:
        """A JSON value; ``interval`` is left out if it is empty."""
        found: dict[str, Any] = {"how": self.how, "of": list(self.of)}
        return found | ({"interval": list(self.interval)} if self.interval else {})

    def brief(self, numbers: Mapping[str, int]) -> str:
        """The origin with numbered files, ``mean of S1+S2/f1``; places with the same parent are named together."""
        further = f"; interval also of {_brief(self.interval, numbers)}" if self.interval else ""
        how = "" if self.how == "copy" else f"{self.how} of "
        return f"{how}{_brief(self.of, numbers)}{further}"


class Sourced(str):
    """A text that carries the origin of its figures."""

    origin: Origin | None

    def __new__(cls, text: str, origin: Origin | None = None) -> Sourced:
        """The text with its origin."""
        found = super().__new__(cls, text)
        found.origin = origin
        return found


def origin_of(value: object) -> Origin | None:
    """The origin that a text or a number carries; an origin is its own."""
    found = value if isinstance(value, Origin) else getattr(value, "origin", None)
    return found if isinstance(found, Origin) else None


def joined(how: str, values: Iterable[object], interval: Iterable[object] = ()) -> Origin | None:
    """One origin of all the values that have one; ``None`` if none has."""
    of = tuple(dict.fromkeys(place for value in values for place in _places(value)))
    more = tuple(place for place in dict.fromkeys(p for value in interval for p in _places(value)) if place not in of)
    return Origin(how, of, more) if of else None


def _places(value: object) -> Iterator[str]:
    if found := origin_of(value):
        yield from found.of
        yield from found.interval


def _brief(places: Iterable[str], numbers: Mapping[str, int]) -> str:
    files: dict[str, list[str]] = {}
    for place in places:
        file, _, pointer = place.partition("#")
        files.setdefault(pointer, []).append(f"S{numbers[file]}")
    leaves: dict[str, list[str]] = {}
    for pointer, names in files.items():
        parent, mark, leaf = pointer.rpartition("/")
        leaves.setdefault(f"{'+'.join(names)}{parent}{mark}", []).append(leaf)
    return ", ".join(f"{at}{{{','.join(found)}}}" if len(found) > 1 else at + found[0] for at, found in leaves.items())
