"""The nodes of the lineage page, consumers first: the figures, the runs of each stage, and the sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from evidence.audit.records import signers_of, trusted_keys
from evidence.audit.sources import RAW
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.pipeline import MAIN, PIPELINES, read_pipelines
from evidence.formats.lineage import Run, in_order, read_json_file, read_lineage
from evidence.formats.page.parts import (
    Figure,
    Node,
    Part,
    SourceFile,
    aside_of,
    figure_at,
    figures,
    joint_state,
    shared_name,
)
from evidence.settings import SETTINGS
from ground.io import DataError
from ground.settings import read_yaml
from ground.show import counted
from ground.text import anchor_of

_TABLES, _LINES = SETTINGS.tables, SETTINGS.lines
_LINES_SHOWN, _PROBLEM_SHOWN, _NAMES_SHOWN = 3, 160, 4


class Nodes:
    """The nodes behind ``target``, or behind everything that the pipeline makes.

    Raises ``DataError`` as ``read_lineage`` does, or if ``target`` is a figure that its file does not have.
    """

    def __init__(self, root: Path, target: str | None) -> None:
        self.root = root
        path, _, pointer = (target or "").partition("#")
        self.lineage = read_lineage(root, target, needs_record=False)
        self.runs = {run.name: run for run in self.lineage.runs}
        self.keys = trusted_keys(root)
        self.stages = {stage.name: stage for stage in [*(r.stage for r in self.lineage.runs), *self.lineage.unrecorded]}
        self.tables, self.figures = path or _TABLES, self._figures(path or _TABLES, pointer)
        if pointer and (files := [file for figure in self.figures for file in figure.files]):
            self._keep_only(files)
        self.groups = self._groups()
        self.ids = {name: group for group, names in self.groups.items() for name in names}
        self.anchors: dict[str, str] = {}
        for title in [*self.groups, *(f"source {name}" for name, _ in self._used_sources())]:
            self._anchor(title)

    def nodes(self) -> list[Node]:
        """The rows: figures, stages from the last to the first, then sources and what these were made from."""
        named = self.groups.items()
        first = [self._stage(title, names) for title, names in named if self.stages[names[0]].file == history.MAIN_LOCK]
        rest = [self._stage(title, names) for title, names in named if self.stages[names[0]].file != history.MAIN_LOCK]
        sources = [self._source(name, source) for name, source in self._used_sources()]
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
        tables = read_json_file(self.root, path)
        return [figure_at(tables, pointer, path)] if pointer else figures(tables)

    def _keep_only(self, files: Iterable[str]) -> None:
        """Leave only the stages that made the figure's table, its files, or something before these."""
        kept = {stage.name for stage in history.producers(self.stages, self.tables)}
        for file in files:
            if history.producers(self.stages, file):
                kept |= history.ancestors(self.stages, file).keys()
        self.stages = {name: stage for name, stage in self.stages.items() if name in kept}

    def _groups(self) -> dict[str, list[str]]:
        """The stages by row, last ones first: the variants of a stage share one. Otherwise dvc.yaml gives the order."""
        listed = list(read_pipelines(self.root)) if (self.root / MAIN).is_file() else []
        ranks = {name: rank for rank, name in enumerate(listed)}
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

    def _anchor(self, title: str) -> str:
        """The row's address, unique on the page."""
        if title not in self.anchors:
            wanted, taken = anchor_of(title) or "row", set(self.anchors.values())
            names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
            self.anchors[title] = next(name for name in names if name not in taken)
        return self.anchors[title]

    def row_of(self, path: str) -> tuple[str, str]:
        """The address and the title of the row that made a path; empty if none did."""
        if path == RAW or path.startswith(f"{RAW}/"):
            source = self.lineage.source_of(path)
            if source and f"source {source[0]}" in self.anchors:
                return self._anchor(f"source {source[0]}"), source[0]
        makers = history.producers(self.stages, path)
        return (self._anchor(self.ids[makers[0].name]), self.ids[makers[0].name]) if makers else ("", "")

    def _makers(self, path: str) -> list[str]:
        """The addresses of the rows that made a path."""
        return [self._anchor(self.ids[maker.name]) for maker in history.producers(self.stages, path)]

    def _figure_rows(self) -> list[Node]:
        if not self.figures:
            return []
        only = self.figures[0] if len(self.figures) == 1 else None
        node = Node(
            self._anchor("figure"),
            "figure",
            only.name if only else f"{len(self.figures)} figures",
            only.value if only else f"the scores in {self.tables}",
            parents=self._makers(self.tables),
        )
        for figure in self.figures:
            places = [(place, self.row_of(place.partition("#")[0])[0]) for place in figure.places]
            node.figures.append((figure, places))
        return [node]

    def _stage(self, title: str, names: list[str]) -> Node:
        stages = [self.stages[name] for name in names]
        parts = [self._part(stage) for stage in stages]
        runs = [self.runs[name] for name in names if name in self.runs]
        node = Node(self._anchor(title), "stage" if runs else "plan", title, self._about(title, stages[0]), parts=parts)
        outs = list(dict.fromkeys(shared_name(stage.name, out) for stage in stages for out in stage.outs))
        node.names = outs[:_NAMES_SHOWN] + ([f"and {len(outs) - _NAMES_SHOWN} more"] if outs[_NAMES_SHOWN:] else [])
        if not stages[0].cmd:
            node.kind = "source"
        node.state, node.tone = joint_state(parts)
        node.aside = aside_of(runs, len(names))
        node.parents = [anchor for stage in stages for dep in stage.deps for anchor in self._makers(dep)]
        if any(RAW in stage.outs for stage in stages):  # each source has its own row
            node.parents += [self._anchor(f"source {name}") for name, _ in self._used_sources()]
        return node

    def _about(self, title: str, stage: Locked) -> str:
        """The stage's description in dvc.yaml."""
        if not stage.cmd:
            return "tracked by DVC, shipped with the repository"
        body = self.bodies.get(title)
        if isinstance(body, Mapping) and body.get("desc"):
            return str(body["desc"])
        return stage.cmd if len(self.groups[title]) == 1 else ""

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

    def _used_sources(self) -> list[tuple[str, dict[str, Any]]]:
        """The sources that the stages on the page read."""
        read = {dep for stage in self.stages.values() for dep in stage.deps}
        return [
            (name, source)
            for name, source in self.lineage.sources.items()
            if any(history.overlap(f"{RAW}/{name}", dep) for dep in read)
        ]

    def _source(self, name: str, source: dict[str, Any]) -> Node:
        node = Node(self._anchor(f"source {name}"), "source", name, f"{source['kind']} {source['location']}")
        node.names = [str(source["licence"])]
        node.aside = counted(len(source["files"]), "file")
        node.facts = [
            ("licence", str(source["licence"])),
            ("location", str(source["location"])),
            ("revision", str(source["revision"] or "none")),
        ]
        for path, entry in sorted(source["files"].items()):
            node.files.append(SourceFile(f"{RAW}/{name}/{path}", entry, *self.lines.get(f"{name}/{path}", (0, []))))
        if source["kind"] == "shipped":
            node.parents = self._makers(str(source["location"]))
        return node

    @cached_property
    def bodies(self) -> dict[str, Any]:
        """The stages as dvc.yaml of either pipeline has them, by name."""
        files = [read_yaml(self.root / file) for file in PIPELINES if (self.root / file).is_file()]
        return {name: body for content in files for name, body in (content.get("stages") or {}).items()}

    @cached_property
    def lines(self) -> dict[str, tuple[int, list[tuple[str, str]]]]:
        """By file below the folder of sources: the number of lines that became rows, and the first of them."""
        path = self.root / _LINES.table
        if not path.is_file():
            return {}
        import polars as pl  # takes a third of a second to load

        columns = (_LINES.id, _LINES.text)
        table = pl.scan_parquet(path).sort("file", "line").group_by("file", maintain_order=True)
        found = table.agg(pl.len(), *(pl.col(column).head(_LINES_SHOWN) for column in columns)).collect()
        return {
            row["file"]: (
                row["len"],
                [(name, text[:_PROBLEM_SHOWN]) for name, text in zip(*(row[c] for c in columns), strict=True)],
            )
            for row in found.iter_rows(named=True)
        }
