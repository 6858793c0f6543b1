"""Numbers that know where they come from: read with their place in a file, and combined with the places of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ground.io import sha256_file
from pathfinder.benchmarks.paper import ScaleRow
from pathfinder.pages.origins import Origin, Sourced, joined, origin_of

PAPER = "pathfinder/benchmarks/paper.toml"
_PROJECT = Path(__file__).resolve().parents[2]
COPY, MEAN, SUM = "copy", "mean", "sum"


class Number(float):
    """A float with its origin."""

    origin: Origin | None = None


class Count(int):
    """An integer with its origin."""

    origin: Origin | None = None


class Object(dict[str, Any]):
    """A JSON object with its origin."""

    origin: Origin | None = None


def with_origin(value: Any, origin: Origin | None) -> Any:
    """A number with an origin; any other value, and any value without an origin, as it is."""
    if origin is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    found = Count(value) if isinstance(value, int) else Number(value)
    found.origin = origin
    return found


def placed(value: Any, file: str, pointer: str = "") -> Any:
    """The content of a JSON file, each of whose numbers and objects knows its place."""
    if isinstance(value, Mapping):
        found = Object({key: placed(inner, file, f"{pointer}/{escaped(str(key))}") for key, inner in value.items()})
        found.origin = Origin(COPY, (f"{file}#{pointer}",))
        return found
    if isinstance(value, list):
        return [placed(inner, file, f"{pointer}/{place}") for place, inner in enumerate(value)]
    return with_origin(value, Origin(COPY, (f"{file}#{pointer}",)))


def made(how: str, value: Any, parents: Iterable[object]) -> Any:
    """A number that was made from others, with their origins."""
    return with_origin(value, joined(how, parents))


def in_percent(share: float | None) -> float | None:
    """A share as a percentage, with the origin of the share."""
    if share is None:
        return None
    found = origin_of(share)
    percentage: float = made(f"{found.how if found else COPY}, times 100", 100 * share, [share])
    return percentage


def said(text: str, values: Iterable[object], how: str = "") -> Sourced:
    """A text with the origins of the values in it; ``how`` says what was done to them."""
    found = list(values)
    ways = {origin.how for value in found if (origin := origin_of(value))}
    return Sourced(text, joined(how or (ways.pop() if len(ways) == 1 else "figures"), found))


def from_files(how: str, paths: Iterable[str]) -> Origin | None:
    """The origin of what was made of whole files; ``None`` without files."""
    found = tuple(paths)
    return Origin(how, found) if found else None


def digest_of_source(path: str) -> tuple[str, int]:
    """sha256 and bytes of a file that an origin names; the paper's figures are part of this package."""
    file = _PROJECT / path if path == PAPER else Path(path)
    return sha256_file(file), file.stat().st_size


def escaped(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def sizes_of_paper(place: int, row: ScaleRow) -> list[Sourced]:
    """The numbers of samples in a row of the paper's table of data sizes, with their places."""
    texts = {1: row.samples, 2: row.mistral_samples}
    at = f"{PAPER}#/scale/rows/{place}"
    return [Sourced(text, Origin(COPY, (f"{at}/{column}",))) for column, text in texts.items()]
