"""``down``: from a file to the stages that read it, directly or through other stages, and to what they made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from evidence.audit.pointers import files_of, origins_of
from evidence.dvc import history
from evidence.settings import SETTINGS
from evidence.verbs.targets import Files
from ground.io import DataError
from ground.show import counted, table


def is_path(text: str, root: Path, revision: str | None = None) -> bool:
    """True if the text is a path of the project, or one that a stage of the lock reads or makes."""
    stages = Files(root, revision).stages.values() if (root / history.MAIN_LOCK).exists() else ()
    named = any(history.overlap(text, path) for stage in stages for path in (*stage.deps, *stage.outs))
    return named or (root / text).exists()


def way_forward(text: str, root: Path, revision: str | None = None) -> dict[str, Any]:
    """The stages that read a path, with the number of stages between and the input, their outs, and the figures.

    Raises ``DataError`` if no stage reads it.
    """
    path, files = Path(text).as_posix(), Files(root, revision)
    rows: dict[str, dict[str, Any]] = {}
    outs, between = [path], 0
    while outs:
        new = {}
        for name, stage in files.stages.items():
            read = next((dep for dep in stage.deps if any(history.overlap(dep, out) for out in outs)), None)
            if stage.cmd and read is not None and name not in rows:
                new[name] = {"stage": name, "stages between": between, "reads": read}
        rows |= new
        outs, between = [out for name in new for out in files.stages[name].outs], between + 1
    if not rows:
        raise DataError(f"{text}: no stage reads it; `{SETTINGS.command} view {text}` says what made it")
    made = {out: rows[name]["stages between"] for name in rows for out in files.stages[name].outs}
    return {
        "path": path,
        "stages": list(rows.values()),
        "outs": list(made),
        "figures": _figures(files, made | {path: -1}),
    }


def _figures(files: Files, made: Mapping[str, int]) -> list[dict[str, Any]]:
    """The figures that are made of one of the paths, each with the fewest stages between; -1 is the path itself."""
    tables: Any = {}
    with suppress(DataError):  # not made yet, or in no store of this machine
        tables = files.value(SETTINGS.tables) if SETTINGS.tables else {}
    found = []
    for pointer, origin in origins_of(tables).items():
        near = [n for out, n in made.items() if any(history.overlap(out, source) for source in files_of([origin]))]
        if near:
            found.append({"figure": f"{SETTINGS.tables}#{pointer}", "stages between": min(near) + 1})
    return found


def text_of(found: Mapping[str, Any]) -> Iterator[str]:
    """The stages and the number of figures as lines of text."""
    yield f"{found['path']} is read by {counted(len(found['stages']), 'stage')}, which made {len(found['outs'])} outs"
    yield ""
    yield from table(found["stages"])
    figures = [row["stages between"] for row in found["figures"]]
    rows = [{"stages between": number, "figures": figures.count(number)} for number in sorted(set(figures))]
    yield from ("", f"{counted(len(figures), 'figure')} depend on it; --json lists each", *table(rows))
