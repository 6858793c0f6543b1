"""The trees from files back to their sources: the stages that made them, with inputs, code and parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.audit.sources import lines_about, sources_of
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.record.identity import LOCKS, is_code
from evidence.record.reading import Record, attesting, known_records
from ground.io import digest_of

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
    stages = history.read_lock(root)
    writer = _Writer(root, stages)
    found = []
    for path in paths:
        history.ancestors(stages, path)  # an error if no stage makes it
        found.append(writer.path(path))
    return found


class _Writer:
    """Builds the nodes; a repeated stage is written once and referred to afterwards."""

    def __init__(self, root: Path, stages: dict[str, Locked]) -> None:
        self.root, self.stages = root, stages
        self.manifest = sources_of(root)
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
        node.children = [self.path(dep) for dep in stage.deps if history.producers(self.stages, dep)]
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
        """The stage with the record that made what the lock has."""
        record = attesting(known_records(self.root, stage.name), stage)
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
    memory, torch = times["peak_rss_bytes"] / 2**20, where["packages"].get("torch")
    files = content.get("rooms", {}).get(LOCKS, {}).get("files", {})
    locks = ", ".join(f"{name} {entry['sha256'][:12]}" for name, entry in files.items())
    return [
        f"record    {record.digest[:16]}, {times['end']}, {times['seconds']} s, {memory:.0f} MiB",
        f"commit    {git['commit'] or 'no repository'}{changed}",
        f"ran on    Python {where['python']}, torch {torch}, {where['cpu']}, {where['system']}",
        f"locks     {locks or 'none'}",
        "made      sha256",
        *(f"            {entry['sha256']}  {path}" for path, entry in content["outputs"].items()),
    ]


def _params_line(key: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _LONGEST_PARAMS:
        text = f"sha256 {digest_of(value)} (values in {history.MAIN_LOCK})"
    return f"params    {key}: {text}"
