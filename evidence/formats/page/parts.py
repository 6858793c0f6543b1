"""The rows of the lineage page, the facts about each run, and the figures of a JSON file of results, as data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evidence.audit.pointers import files_of, origins_of, parts_of, places_of, value_at
from evidence.formats.artefacts import Artefact
from evidence.formats.lineage import Run, text_of

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


_FILES_SHOWN = 200
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class File:
    """A file or folder on the page; ``via`` is the address of the row that made it."""

    path: str
    size: int | None = None
    sha256: str = ""
    via: str = ""
    via_title: str = ""
    files: list[File] = field(default_factory=list)
    more: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """The facts about one run, or about one stage without a record."""

    title: str
    state: str
    tone: str
    facts: list[tuple[str, str]]
    inputs: list[File]
    outputs: list[File]
    params: list[tuple[str, str]] = field(default_factory=list)
    code: list[File] = field(default_factory=list)
    environment: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a source: its id and the start of its text."""

    id: str
    text: str


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
    files: list[tuple[File, int, list[Line]]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    figures: list[tuple[Figure, list[tuple[str, str]]]] = field(default_factory=list)


def file_of(artefact: Artefact, via: tuple[str, str] = ("", "")) -> File:
    """A file or folder of a record, with the address and the title of the row that made it.

    The page shows only the first files of a large folder.
    """
    inner = [File(each.path, each.size, each.sha256) for each in list(artefact.files.values())[:_FILES_SHOWN]]
    more = len(artefact.files) - len(inner)
    return File(artefact.path, artefact.size, artefact.sha256, *via, inner, more)


def facts_of(run: Run) -> list[tuple[str, str]]:
    """Command, record, signature, commit, times and place of a run."""
    git, times, actor = run.content["git"], run.content["times"], run.actor
    changed = f", {len(git['changed'])} files changed" if git.get("dirty") else ""
    where = [actor.get(key) for key in ("user", "host", "container", "image") if actor.get(key)]
    facts = [
        ("command", run.stage.cmd),
        ("record", run.record.digest),
        ("signed statement", run.statement.sha256 if run.statement else "none"),
        ("key", ", ".join(run.key_ids)),
        ("commit", f"{git['commit'] or 'no repository'}{changed}"),
        ("ran", f"{times['start']}, {times['seconds']:,.1f} s, {times['peak_rss_bytes'] / _MIB:,.0f} MiB"),
        ("by", ", ".join(map(str, where))),
        ("flow run", str(actor.get("flow_run") or "")),
    ]
    return [fact for fact in facts if fact[1]]


def environment_of(run: Run) -> list[tuple[str, str]]:
    """Interpreter, machine, variables and packages of a run."""
    content = run.content["environment"]
    torch, cuda = content.get("torch") or {}, content.get("cuda") or {}
    facts = [
        ("Python", str(content.get("python") or "")),
        ("system", f"{content.get('system', '')} {content.get('machine', '')}"),
        ("processor", f"{content.get('cpu') or 'unknown'}, {content.get('cpus_usable', '?')} usable"),
        ("PyTorch", f"{run.packages.get('torch', '')}: {text_of(torch)}" if torch else "not loaded"),
        ("GPU", ", ".join(map(str, cuda.get("devices", []))) or "none"),
        ("variables", ", ".join(f"{name}={value}" for name, value in content.get("variables", {}).items())),
        ("packages", f"{len(run.packages)} installed"),
    ]
    return [fact for fact in facts if fact[1].strip()]


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


def pretty(value: Any) -> str:
    """A parameter on as many lines as it needs."""
    return value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
