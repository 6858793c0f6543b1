"""``up``: from an out, or a figure in one, to the source files; ``down``: from a file to what was made of it.

For a figure, ``up`` names the places that it was made of, what they hold, and whether they give the figure again. A
tree leads from a file back to its sources: the stages that made it, with inputs, code and parameters. ``down`` follows
the stages that read a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.audit.pointers import files_of, origins_of, recomputed, shows, value_at
from evidence.audit.sources import MANIFEST, lines_about, sources_of
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.record.identity import LOCKS, is_code
from evidence.record.reading import Record
from evidence.settings import SETTINGS
from evidence.verbs.targets import Files, Target, at, link_outs, target_of
from ground.io import DataError, digest_of
from ground.show import counted, table

_LONGEST_PARAMS = 400


@dataclass(slots=True)
class Node:
    """A path or a stage with notes for people, facts for programs, and the nodes that it was made from."""

    title: str
    notes: list[str] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def lines(self, first: str = "", rest: str = "") -> Iterator[str]:
        """The tree as lines of text."""
        yield first + self.title
        bar = rest + ("│  " if self.children else "   ")
        yield from (bar + note for note in self.notes)
        for child in self.children:
            last = child is self.children[-1]
            yield from child.lines(rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

    def as_json(self) -> dict[str, Any]:
        """The facts of the node and of those below it."""
        return self.facts | ({"made of": [child.as_json() for child in self.children]} if self.children else {})


def trees(paths: Iterable[str], root: Path) -> list[Node]:
    """The tree behind each path (an out, a file in one, or a folder of outs), from the locks and the records.

    A stage is written once. Nothing is re-hashed; ``check`` does that. Raises ``DataError`` if no lock
    contains a path.
    """
    writer = _Writer(Files(root))
    found = []
    for path in paths:
        history.ancestors(writer.stages, path)  # an error if no stage makes it
        found.append(writer.path(path))
    return found


class _Writer:
    """Builds the nodes; a repeated stage is written once and referred to afterwards."""

    def __init__(self, files: Files) -> None:
        self.files, self.stages = files, files.stages
        self.manifest = sources_of(files.root)
        self.written: set[str] = set()
        self.named: set[tuple[str, str]] = set()  # code paths and digests that were written already

    def path(self, path: str) -> Node:
        makers = history.producers(self.stages, path)
        known = (files[path] for s in [*makers, *self.stages.values()] for files in (s.outs, s.deps) if path in files)
        digest = next(known, None)
        sources = lines_about(path, self.manifest)
        facts: dict[str, Any] = {"path": path, "md5": digest} | ({"sources": sources} if sources else {})
        node = Node(f"{path}  md5 {digest}" if digest else path, sources, facts=facts)
        node.children = [self.stage(maker, path) for maker in makers]
        return node

    def stage(self, stage: Locked, wanted: str) -> Node:
        if stage.name in self.written:
            return Node(f"{stage.name}  (above)", facts={"stage": stage.name, "above": True})
        self.written.add(stage.name)
        if not stage.cmd:
            return self._shipped(stage, wanted)
        node = self._run(stage)
        node.children = [self.path(dep) for dep in stage.deps if not is_code(dep)]
        return node

    def _shipped(self, stage: Locked, wanted: str) -> Node:
        """A ``.dvc`` file, and the earlier outs that the wanted part of it is a copy of."""
        node = Node(stage.name, ["tracked by DVC, shipped with the repository"], facts={"pointer": stage.name})
        is_part = any(history.overlap(out, wanted) for out in stage.outs)
        origin = wanted.replace(history.SHIPPED, history.COLLECTED, 1) if is_part else ""
        for out, md5 in stage.deps.items():
            if history.overlap(out, origin):
                made = next(maker.outs[out] for maker in history.producers(self.stages, out) if out in maker.outs)
                same = "the same bytes as" if made == md5 else f"shipped as {md5 or 'nothing'}, which DIFFERS from"
                node.notes.append(f"{same} {out}")
                node.children.append(self.path(out))
        if not node.children:
            node.notes[0] += "; no stage makes it"
        return node

    def _run(self, stage: Locked) -> Node:
        """The stage with the record of the run that made its outs."""
        record = self.files.made(stage)
        facts: dict[str, Any] = {"stage": stage.name, "command": stage.cmd, "params": stage.params, "outs": stage.outs}
        facts |= {"code": {dep: md5 for dep, md5 in stage.deps.items() if is_code(dep)}}
        facts |= {"record": record.digest, "times": record.content["times"]} if record else {"record": None}
        facts |= {"git": record.content["git"]} if record else {}
        return Node(f"{stage.name}  $ {stage.cmd}", self._notes(stage, record), facts=facts)

    def _notes(self, stage: Locked, record: Record | None) -> list[str]:
        code = {dep: md5 for dep, md5 in stage.deps.items() if is_code(dep)}
        new = sorted(code.items() - self.named)
        self.named.update(new)
        above = f", {len(code) - len(new)} of them listed above" if len(new) < len(code) else ""
        return [
            *(_record_lines(record) if record else ["record    none on this machine (restored, or run elsewhere)"]),
            *(_params_line(key, value) for key, value in stage.params.items()),
            f"code      {len(code)} files and folders with digest {digest_of(code)[:16]}{above}; md5 of each",
            *(f"            {md5}  {dep}" for dep, md5 in new),
        ]


def _record_lines(record: Record) -> list[str]:
    content = record.content
    times, git, where = content["times"], content["git"], content["environment"]
    changed = f" with {len(git['changed'])} files changed" if git["dirty"] else ""
    memory, torch = times["peak_rss_bytes"] / 2**20, where.get("packages", {}).get("torch")
    files = content.get("rooms", {}).get(LOCKS, {}).get("files", {})
    locks = ", ".join(f"{name} {entry['sha256'][:12]}" for name, entry in files.items())
    return [
        f"record    {record.digest[:16]}, {times['end']}, {times['seconds']} s, {memory:.0f} MiB",
        f"commit    {git['commit'] or 'no repository'}{changed}",
        f"ran on    Python {where.get('python')}, torch {torch}, {where.get('cpu')}, {where.get('system')}",
        f"locks     {locks or 'none'}",
        "made      sha256",
        *(f"            {entry['sha256']}  {path}" for path, entry in content["outputs"].items()),
    ]


def _params_line(key: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _LONGEST_PARAMS:
        text = f"sha256 {digest_of(value)} (values in {history.MAIN_LOCK})"
    return f"params    {key}: {text}"


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
    maker = files.maker(path)
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
    origin = f"  (md5 {place['md5']}, made by {place['stage']})" if place["stage"] else "  (made by no stage)"
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

    def lines(self) -> Iterator[str]:
        """The figures, then the trees, as lines of text."""
        yield from lines_of(self.figures)
        yield from [""] * bool(self.figures)
        for node in self.trees:
            yield from node.lines()


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
            with suppress(DataError):  # no store of this machine has it
                link_outs(folder, Files(root, target.revision), [MANIFEST.as_posix()])
        return WayBack(target, figures, trees(names or [target.name], folder))


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
    rows = readers(files.stages, [path])
    if not rows:
        raise DataError(f"{text}: no stage reads it; `{SETTINGS.command} view {text}` says what made it")
    made = {out: rows[name]["stages between"] for name in rows for out in files.stages[name].outs}
    return {
        "path": path,
        "stages": list(rows.values()),
        "outs": list(made),
        "figures": _figures(files, made | {path: -1}),
    }


def readers(stages: Mapping[str, Locked], paths: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The stages that read one of the paths, or files made of them, by name, with the number of stages between."""
    rows: dict[str, dict[str, Any]] = {}
    outs, between = list(paths), 0
    while outs:
        new = {}
        for name, stage in stages.items():
            read = next((dep for dep in stage.deps if any(history.overlap(dep, out) for out in outs)), None)
            if stage.cmd and read is not None and name not in rows:
                new[name] = {"stage": name, "stages between": between, "reads": read}
        rows |= new
        outs, between = [out for name in new for out in stages[name].outs], between + 1
    return rows


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


def forward_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The stages and the number of figures as lines of text."""
    yield f"{found['path']} is read by {counted(len(found['stages']), 'stage')}, which made {len(found['outs'])} outs"
    yield ""
    yield from table(found["stages"])
    figures = [row["stages between"] for row in found["figures"]]
    rows = [{"stages between": number, "figures": figures.count(number)} for number in sorted(set(figures))]
    yield from ("", f"{counted(len(figures), 'figure')} depend on it; --json lists each", *table(rows))
