"""``lineage up``: from an out, or from a figure in one, to the source files, now or at a git revision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.audit.graph import Node, trees
from evidence.audit.sources import MANIFEST
from evidence.verbs.figure import Figure, figures_at, lines_of
from evidence.verbs.revision import at
from evidence.verbs.targets import Files, Target, target_of
from ground.io import DataError


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
