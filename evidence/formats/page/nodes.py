"""The rows of the lineage page, consumers first: the figures, the runs of each stage, and the sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from evidence.audit.pointers import origins_of, places_of, value_at
from evidence.audit.records import signers_of
from evidence.audit.sources import RAW
from evidence.audit.trust import trusted_keys
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.pipeline import MAIN, read_pipelines
from evidence.formats.lineage import Run, in_order, read_lineage
from evidence.settings import SETTINGS
from ground.io import DataError, read_json
from ground.show import counted
from ground.text import anchor_of

_TABLES, _LINES = SETTINGS.tables, SETTINGS.lines
_FIGURES = " figure "  # with spaces, so that it is not the name of a stage
_LINES_SHOWN, _PROBLEM_SHOWN, _NAMES_SHOWN = 3, 160, 4
Lines = tuple[int, list[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: its JSON pointer, name and value, how it was made, and its origins (``path#pointer``)."""

    pointer: str
    name: str
    value: str
    how: str = ""
    places: tuple[str, ...] = ()


def figures(tables: Any) -> list[Figure]:
    """The scores of every system, as the report's first table has them; empty for a file without such a table."""
    results = tables.get("results") if isinstance(tables, Mapping) else None
    part = {key: tables[key] for key in ("results", "origins") if results and key in tables}  # less to search
    return [
        _figure(part, f"/results/{number}/{key}", f"{line.get('system', number)}: {key}", score)
        for number, line in enumerate(results if isinstance(results, list) else ())
        for key, score in (line.items() if isinstance(line, Mapping) else ())
        if isinstance(score, Mapping) and isinstance(score.get("value"), (int, float))
    ]


def figure_at(tables: Any, pointer: str, where: str) -> Figure:
    """The figure under a JSON pointer; raises ``DataError`` as ``pointers.value_at`` does."""
    value = value_at(tables, pointer, where)
    known = next((figure for figure in figures(tables) if figure.pointer == pointer), None)
    return known or _figure(tables, pointer, pointer or where, value)


def _figure(tables: Any, pointer: str, name: str, value: Any) -> Figure:
    """The figure with all origins at, above and below its pointer."""
    found = origins_of(tables, pointer).values()
    how = ", ".join(dict.fromkeys(str(origin["how"]) for origin in found))
    return Figure(pointer, name, _short(value), how, tuple(places_of(found)))


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


@dataclass(slots=True)
class Node:
    """A row of the page.

    ``source`` is the entry of the manifest. ``lines`` has, for each file of the source, the number of its lines that
    became rows, and the id and the start of the text of the first rows.
    """

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
    source: Mapping[str, Any] = field(default_factory=dict)
    lines: dict[str, Lines] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)


def joint_state(parts: list[Part]) -> tuple[str, str]:
    """The state that all runs of a row share, or else the worst state."""
    order = ("bad", "none", "plain", "good")
    worst = min(parts, key=lambda part: order.index(part.tone))
    same = sum(part.state == worst.state for part in parts)
    return (worst.state if same == len(parts) else f"{same} of {len(parts)}: {worst.state}"), worst.tone


def aside_of(runs: list[Run], stages: int) -> str:
    """The number of runs in a row, and their time."""
    count = f"{stages} runs, " if stages > 1 else ""
    seconds = sum(run.content["times"]["seconds"] for run in runs)
    return f"{count}{seconds:,.0f} s" if seconds >= 1 else f"{count}under 1 s" if runs else ""


def shared_name(stage: str, path: str) -> str:
    """A path of a variant (``train@full``) in the form that all variants share: ``models/*``."""
    variant = stage.partition("@")[2]
    return re.sub(rf"(?<![\w-]){re.escape(variant)}(?![A-Za-z0-9-])", "*", path) if variant else path


class Nodes:
    """The nodes behind ``target``, or behind everything that the pipeline makes.

    Raises ``DataError`` as ``read_lineage`` does, or if ``target`` is a figure that its file does not have.
    """

    def __init__(self, root: Path, target: str | None) -> None:
        self.root = root
        self.pipeline = read_pipelines(root) if (root / MAIN).is_file() else {}
        self.lineage = read_lineage(root, target, needs_record=False)
        path, _, pointer = (self.lineage.target or "").partition("#")
        self.runs = {run.name: run for run in self.lineage.runs}
        self.keys = trusted_keys(root)
        self.stages = {stage.name: stage for stage in [*(r.stage for r in self.lineage.runs), *self.lineage.unrecorded]}
        self.tables, self.figures = path or _TABLES, self._figures(path or _TABLES, pointer)
        if pointer and (places := [place for figure in self.figures for place in figure.places]):
            self._keep_only({place.partition("#")[0] for place in places})
        self.groups = self._groups()
        self.ids = {name: group for group, names in self.groups.items() for name in names}
        read = {dep for stage in self.stages.values() for dep in stage.deps}
        sources = self.lineage.sources.items()
        self.sources = {n: s for n, s in sources if any(history.overlap(f"{RAW}/{n}", dep) for dep in read)}
        """The sources that the stages on the page read."""
        self.anchors: dict[str, str] = {}
        """The address of each row, unique on the page, by its title."""
        for title in [*self.groups, *(f"source {name}" for name in self.sources), _FIGURES]:
            wanted, taken = anchor_of(title) or "row", set(self.anchors.values())
            names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
            self.anchors[title] = next(name for name in names if name not in taken)

    def nodes(self) -> list[Node]:
        """The rows: figures, stages from the last to the first, then sources and the earlier stages that made them."""
        named = self.groups.items()
        first = [self._stage(title, names) for title, names in named if self.stages[names[0]].file == history.MAIN_LOCK]
        rest = [self._stage(title, names) for title, names in named if self.stages[names[0]].file != history.MAIN_LOCK]
        sources = [self._source(name, source) for name, source in self.sources.items()]
        nodes = [*self._figure_rows(), *first, *sources, *rest]
        known = {node.id for node in nodes}
        for node in nodes:
            node.parents = [parent for parent in dict.fromkeys(node.parents) if parent in known and parent != node.id]
        return nodes

    def _figures(self, path: str, pointer: str) -> list[Figure]:
        is_made = any(history.overlap(out, path) for stage in self.stages.values() for out in stage.outs)
        if not is_made or not path.endswith(".json") or not (self.root / path).is_file():
            if pointer:
                raise DataError(f"{path}: no such JSON file; name a figure by its place in one: FILE.json#/POINTER")
            return []
        tables = read_json(self.root / path)
        return [figure_at(tables, pointer, path)] if pointer else figures(tables)

    def _keep_only(self, files: Iterable[str]) -> None:
        """Keep only the stages that made the figure's table or its files, and the stages before them."""
        makers = [maker.name for file in files for maker in history.producers(self.stages, file)]
        kept = {stage.name for stage in history.producers(self.stages, self.tables)}
        kept |= history.behind(self.stages, makers).keys()
        self.stages = {name: stage for name, stage in self.stages.items() if name in kept}

    def _groups(self) -> dict[str, list[str]]:
        """The stages by row, last ones first; variants of a stage share a row. Otherwise dvc.yaml gives the order."""
        ranks = {name: rank for rank, name in enumerate(self.pipeline)}
        found: dict[str, list[str]] = {}
        for name in sorted(self.stages, key=lambda name: (ranks.get(name, len(ranks)), name)):
            found.setdefault(name.partition("@")[0], []).append(name)
        above = {
            title: {
                maker.name.partition("@")[0]
                for name in names
                for dep in self.stages[name].deps
                for maker in history.producers(self.stages, dep)
            }
            for title, names in found.items()
        }
        return {title: found[title] for title in reversed(in_order(above))}

    def row_of(self, path: str) -> tuple[str, str]:
        """The address and the title of the row that made a path; empty if none did."""
        if path == RAW or path.startswith(f"{RAW}/"):
            source = self.lineage.source_of(path)
            if source and source[0] in self.sources:
                return self.anchors[f"source {source[0]}"], source[0]
        makers = history.producers(self.stages, path)
        return (self.anchors[self.ids[makers[0].name]], self.ids[makers[0].name]) if makers else ("", "")

    def _makers(self, path: str) -> list[str]:
        """The addresses of the rows that made a path."""
        return [self.anchors[self.ids[maker.name]] for maker in history.producers(self.stages, path)]

    def _figure_rows(self) -> list[Node]:
        if not self.figures:
            return []
        title, note = f"{len(self.figures)} figures", f"the scores in {self.tables}"
        if len(self.figures) == 1:
            title, note = self.figures[0].name, self.figures[0].value
        parents = self._makers(self.tables)
        return [Node(self.anchors[_FIGURES], "figure", title, note, parents=parents, figures=self.figures)]

    def _stage(self, title: str, names: list[str]) -> Node:
        stages = [self.stages[name] for name in names]
        parts = [self._part(stage) for stage in stages]
        runs = [self.runs[name] for name in names if name in self.runs]
        node = Node(self.anchors[title], "stage" if runs else "plan", title, self._about(title, stages[0]), parts=parts)
        outs = list(dict.fromkeys(shared_name(stage.name, out) for stage in stages for out in stage.outs))
        node.names = outs[:_NAMES_SHOWN] + ([f"and {len(outs) - _NAMES_SHOWN} more"] if outs[_NAMES_SHOWN:] else [])
        if not stages[0].cmd:
            node.kind = "source"
        node.state, node.tone = joint_state(parts)
        node.aside = aside_of(runs, len(names))
        node.parents = [anchor for stage in stages for dep in stage.deps for anchor in self._makers(dep)]
        if any(RAW in stage.outs for stage in stages):  # each source has its own row
            node.parents += [self.anchors[f"source {name}"] for name in self.sources]
        return node

    def _about(self, title: str, stage: Locked) -> str:
        """The stage's description in dvc.yaml."""
        if not stage.cmd:
            return "tracked by DVC, shipped with the repository"
        defined = (each.desc for each in self.pipeline.values() if each.name.partition("@")[0] == title)
        return next(defined, "") or (stage.cmd if len(self.groups[title]) == 1 else "")

    def _part(self, stage: Locked) -> Part:
        if (run := self.runs.get(stage.name)) is None:
            return Part(stage, None, "no record here" if stage.cmd else "", "none")
        return Part(stage, run, *self._signature(run))

    def _signature(self, run: Run) -> tuple[str, str]:
        if run.statement is None:
            return "not signed", "plain"
        try:
            signers = signers_of(run.record, self.keys)
        except DataError:
            return "the signature is wrong", "bad"
        return ("signed", "good") if signers else ("signed by a key that is not trusted here", "plain")

    def _source(self, name: str, source: dict[str, Any]) -> Node:
        node = Node(self.anchors[f"source {name}"], "source", name, f"{source['kind']} {source['location']}")
        node.names = [str(source["licence"])]
        node.aside, node.source = counted(len(source["files"]), "file"), source
        node.lines = {path: self.lines[file] for path in source["files"] if (file := f"{name}/{path}") in self.lines}
        if source["kind"] == "shipped":
            node.parents = self._makers(str(source["location"]))
        return node

    @cached_property
    def lines(self) -> dict[str, Lines]:
        """The number of lines that became rows, and the first of these lines, by file below the folder of sources."""
        path = self.root / _LINES.table
        if not path.is_file():
            return {}
        import polars as pl  # takes a third of a second to load

        table = pl.scan_parquet(path).sort("file", "line").group_by("file", maintain_order=True)
        found = table.agg(pl.len(), pl.col(_LINES.id, _LINES.text).head(_LINES_SHOWN)).collect()
        return {
            file: (number, [(name, text[:_PROBLEM_SHOWN]) for name, text in zip(names, texts, strict=True)])
            for file, number, names, texts in found.iter_rows()
        }
