"""``up``: from an out, or from a figure in one, to the source files, now or at a git revision.

For a figure, ``up`` names the places that it was made of, what they hold, and whether they give the figure again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.audit.graph import Node, trees
from evidence.audit.pointers import origins_of, recomputed, shows, value_at
from evidence.audit.sources import MANIFEST
from evidence.verbs.revision import at
from evidence.verbs.targets import Files, Target, maker_of, target_of
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


@dataclass(frozen=True, slots=True)
class WayBack:
    """The figures of the target, if it has a pointer, and the trees behind the files that they were made of."""

    target: Target
    figures: list[Figure]
    trees: list[Node]

    def as_json(self) -> dict[str, Any]:
        """A JSON value."""
        nodes = [node.as_json() for node in self.trees]
        return {"target": str(self.target), "figures": self.figures, "made of": nodes}


def way_back(text: str, root: Path, revision: str | None = None) -> WayBack:
    """The way from a target back to the sources; raises ``DataError`` if there is no such out or place in it."""
    target = target_of(text, root, revision)
    figures = figures_at(target, root) if target.pointer is not None else []
    names = dict.fromkeys(
        place["place"].partition("#")[0]
        for figure in figures
        for place in (*figure["of"], *figure.get("interval", ()))
        if place["stage"]
    )
    with at(root, target.revision) as folder:
        if folder is not root and MANIFEST.name:
            _add_manifest(Files(root, target.revision), folder)
        return WayBack(target, figures, trees(names or [target.name], folder))


def text_of(found: WayBack) -> Iterator[str]:
    """The figures, then the trees."""
    yield from lines_of(found.figures)
    yield from [""] * bool(found.figures)
    for node in found.trees:
        yield from node.lines()


def _add_manifest(files: Files, folder: Path) -> None:
    """Write the manifest of sources of a revision into its folder, if this machine has it."""
    name = MANIFEST.as_posix()
    with suppress(DataError):
        content = files.read(name)
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(content)
