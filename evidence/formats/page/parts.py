"""The rows of the lineage page, and the figures of a JSON file of results, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evidence.audit.pointers import files_of, origins_of, parts_of, places_of, value_at
from evidence.dvc.history import Locked
from evidence.formats.lineage import Run

Origins = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: its JSON pointer, its name, its value, the places (``path#pointer``) it was made from, their files."""

    pointer: str
    name: str
    value: str
    how: str = ""
    places: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


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
    how = ", ".join(dict.fromkeys(str(origin["how"]) for origin in found))
    return Figure(pointer, name, _short(value), how, tuple(places_of(found)), tuple(files_of(found)))


def _short(value: Any) -> str:
    if isinstance(value, Mapping) and isinstance(value.get("value"), (int, float)):
        interval = f" [{value['low']:.2f}, {value['high']:.2f}]" if {"low", "high"} <= value.keys() else ""
        return f"{value['value']:.2f}{interval}"
    if isinstance(value, (Mapping, list)):
        return f"{len(value)} values"
    return str(value)


@dataclass(frozen=True, slots=True)
class Part:
    """One stage of a row, its run (``None`` without a record), and the state of the run's signature."""

    stage: Locked
    run: Run | None
    state: str
    tone: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source: its path, its entry in the manifest, how many of its lines became rows, and the first ones.

    A row has the id and the start of the text of its line.
    """

    path: str
    entry: Mapping[str, Any]
    count: int
    lines: list[tuple[str, str]]


@dataclass(slots=True)
class Node:
    """A row of the page."""

    id: str
    kind: str
    title: str
    note: str = ""
    names: list[str] = field(default_factory=list)
    state: str = ""
    tone: str = "plain"
    aside: str = ""
    parents: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    files: list[SourceFile] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    figures: list[tuple[Figure, list[tuple[str, str]]]] = field(default_factory=list)


def joint_state(parts: list[Part]) -> tuple[str, str]:
    """The state of all runs of a row: the one that they share, or the worst."""
    order = ("bad", "none", "plain", "good")
    worst = min(parts, key=lambda part: order.index(part.tone))
    same = sum(part.state == worst.state for part in parts)
    return (worst.state if same == len(parts) else f"{same} of {len(parts)}: {worst.state}"), worst.tone


def aside_of(runs: list[Run], stages: int) -> str:
    """How many runs a row has, and their time."""
    count = f"{stages} runs, " if stages > 1 else ""
    seconds = sum(run.content["times"]["seconds"] for run in runs)
    return f"{count}{seconds:,.0f} s" if seconds >= 1 else f"{count}under 1 s" if runs else ""


def shared_name(stage: str, path: str) -> str:
    """A path of a variant (``train@full``) in the form that all variants share: ``models/*``."""
    variant = stage.partition("@")[2]
    return re.sub(rf"(?<![\w-]){re.escape(variant)}(?![A-Za-z0-9-])", "*", path) if variant else path
