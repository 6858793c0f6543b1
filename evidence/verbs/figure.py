"""``up`` for one figure: the places that it was made of, what they hold, and whether they give the figure again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evidence.verbs.pointers import origins_of, recomputed, shows, value_at
from evidence.verbs.targets import Files, Target, maker_of
from ground.io import DataError

_MOST = 40
Figure = dict[str, Any]


def figures_at(target: Target, root: Path) -> list[Figure]:
    """The figures at and below the target's pointer, each with its origin; without origins, the value itself.

    Raises ``DataError`` if the file has no such place, or more than 40 figures below it.
    """
    files = Files(root, target.revision)
    content, pointer = files.value(target.name), target.pointer or ""
    value = value_at(content, pointer, target.name)
    origins = origins_of(content, pointer)
    if len(origins) > _MOST:
        raise DataError(f"{target}: {len(origins)} figures are below this place; name one of them, or at most {_MOST}")
    if not origins:
        return [{"figure": str(target), "value": value, "how": None, "of": [_place(files, f"{target.name}#{pointer}")]}]
    return [
        _figure(files, f"{target.name}#{place}", value_at(content, place, target.name), origin)
        for place, origin in origins.items()
    ]


def _figure(files: Files, name: str, value: Any, origin: dict[str, Any]) -> Figure:
    places = [_place(files, place) for place in origin["of"]]
    found: Figure = {"figure": name, "value": value, "how": origin["how"], "of": places}
    if more := origin.get("interval"):
        found["interval"] = [_place(files, place) for place in more]
    shown = value["value"] if isinstance(value, dict) and "value" in value else value
    whole = all("value" in place for place in places)
    expected = recomputed(origin["how"], [place["value"] for place in places]) if whole else None
    if expected is not None:
        found["computed again"] = "the same" if all(shows(shown, one) for one in expected) else f"DIFFERS: {expected}"
    return found


def _place(files: Files, place: str) -> dict[str, Any]:
    path, mark, pointer = place.partition("#")
    maker = maker_of(files.stages, path)
    found: dict[str, Any] = {"place": place, "stage": maker.name if maker else None, "md5": files.md5(path)}
    if mark:
        found["value"] = value_at(files.value(path), pointer, path)
    return found


def lines_of(figures: list[Figure]) -> list[str]:
    """The figures as lines of text."""
    lines = []
    for figure in figures:
        lines.append(f"{figure['figure']}  {_short(figure['value'])}")
        if figure["how"]:
            again = f" (computed again: {figure['computed again']})" if "computed again" in figure else ""
            lines.append(f"  {figure['how']}{again}, from")
        for title, places in (("", figure["of"]), ("its interval also depends on", figure.get("interval", []))):
            lines += [f"  {title}"] if title and places else []
            lines += [f"    {_line(place)}" for place in places]
    return lines


def _line(place: dict[str, Any]) -> str:
    value = f"  {_short(place['value'])}" if "value" in place else ""
    origin = f"  (md5 {place['md5']}, made by {place['stage']})" if place["stage"] else "  (tracked by git)"
    return f"{place['place']}{value}{origin}"


def _short(value: Any) -> str:
    text = str(value["value"]) if isinstance(value, dict) and "value" in value else str(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
