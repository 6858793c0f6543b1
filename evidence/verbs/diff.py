"""``diff``: which inputs differ between two sides, stage by stage, and which outs and figures differ as a result.

A side is a revision, the project as it is, the run of a record, or the stage behind an out. An input that a stage of
both sides made is not a cause: the inputs of that stage are compared instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from evidence.audit.claims import NONE, comparable, differing, quoted
from evidence.audit.findings import listed
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.pipeline import read_pipelines, value_at
from evidence.record.environment import FLOW_RUN, describe_environment, git
from evidence.record.identity import LOCKS, is_code
from evidence.record.materials import pinned
from evidence.record.reading import Record
from evidence.settings import SETTINGS
from evidence.verbs.targets import Files, known_commit, names_at, read_at, target_of
from evidence.verbs.views import record_named
from ground.hashing import digest_path
from ground.io import DataError, PathfinderError
from ground.settings import read_yaml
from ground.show import counted

_WHILE_RUNNING = ("torch", "cuda", "variables", "edited_files")
"""Facts of an environment that only a running stage knows."""


@dataclass(slots=True)
class Side:
    """One side: its title, stages, files and records of its runs; ``is_one`` if it is a record or an out."""

    title: str
    stages: dict[str, Locked]
    files: Files
    records: dict[str, Record] = field(default_factory=dict)
    is_one: bool = False


def sides_of(left: str, right: str | None, root: Path) -> tuple[Side, Side]:
    """The two sides, reduced to the stage that they have in common if one of them is a single stage.

    Raises ``DataError`` if a text names no side, or the sides have no stage in common.
    """
    one = _side(left, root)
    two = _now(one, root) if right is None and one.is_one else _side(right, root)
    for side, other in ((one, two), (two, one)):
        if side.is_one and not other.is_one:
            other.stages = {name: stage for name, stage in other.stages.items() if name in side.stages}
    if not one.stages or not two.stages:
        raise DataError(f"{one.title} and {two.title} have no stage in common")
    return one, two


def _side(text: str | None, root: Path) -> Side:
    if text is None or (known_commit(root, text) and not (root / text).exists()):
        files = Files(root, text)
        stages = {n: s for n, s in files.stages.items() if s.file == history.MAIN_LOCK or not s.cmd}
        return Side(text or f"the current {history.MAIN_LOCK}", stages, files, _made(stages, files))
    if record := record_named(text, root):
        content = record.content
        stage = Locked(content["stage"], content["cmd"], record.inputs, record.outputs, content["params"])
        return Side(f"record {record.digest[:12]}", {stage.name: stage}, Files(root), {stage.name: record}, is_one=True)
    target = target_of(text, root)
    files = Files(root, target.revision)
    maker = files.maker(target.name) or files.stages.get(target.name)
    if maker is None:
        raise DataError(f"{text}: neither a revision, nor a record's digest, nor an output of a stage")
    return Side(str(target), {maker.name: maker}, files, _made({maker.name: maker}, files), is_one=True)


def _made(stages: Mapping[str, Locked], files: Files) -> dict[str, Record]:
    return {name: record for name, stage in stages.items() if (record := files.made(stage))}


def _now(side: Side, root: Path) -> Side:
    """A side's stage as it would run now: current parameters, code and environment; data and outs of the lock.

    Facts that only a running stage knows are taken from the side's record.
    """
    name, earlier = next(iter(side.stages)), next(iter(side.records.values()), None)
    locked, defined = history.read_lock(root).get(name), read_pipelines(root).get(name)
    if locked is None or defined is None:
        what = f"{name}, which is not a stage of the current dvc.yaml and {history.MAIN_LOCK}, so it would not run now"
        raise DataError(f"{side.title}: belongs to {what}; name a second side, such as HEAD~1")
    params = read_yaml(root / defined.params_file) if defined.params else {}
    rooms = {path: digest_path(root / path) for path in defined.deps if is_code(path) and (root / path).exists()}
    deps = {path: locked.deps.get(path, NONE) for path in defined.deps} | {p: d.md5 for p, d in rooms.items()}
    values = {key: value_at(params, key, NONE) for key in defined.params}
    stage = Locked(name, defined.cmd, deps, locked.outs, values)
    if earlier is None:
        return Side("now", {name: stage}, Files(root))
    known = earlier.content["environment"]
    environment = describe_environment() | {key: known.get(key) for key in _WHILE_RUNNING}
    content = earlier.content | {"environment": environment, "rooms": {path: d.as_json() for path, d in rooms.items()}}
    return Side("now", {name: stage}, Files(root), {name: Record(root, "", content)})


NAMES = {
    "torch.capability": "CPU capability",
    "torch.threads": "threads of PyTorch",
    "cpu": "CPU",
    "cpu_flags": "CPU flags",
    "cpus": "CPUs",
    "cpus_usable": "usable CPUs",
    "python": "Python",
    "cuda": "GPU",
}
"""The facts of an environment that have a separate title."""
_GROUPS = {"variables.": "variable", "wheels.": "files of package", "edited_files.": "edited file"}
"""The noun for the facts of a group, by the beginning of their names."""


@dataclass(frozen=True, slots=True)
class Change:
    """An input that differs: its kind, its subject, and both values."""

    kind: str
    about: str
    left: Any
    right: Any


class Causes:
    """The changes between two sides."""

    def __init__(self, one: Side, two: Side, root: Path) -> None:
        self.one, self.two, self.root = one, two, root

    def of_stage(self, first: Locked, second: Locked) -> Iterator[Change]:
        """The changes of the command, parameters, inputs, environment and journals of one stage."""
        if first.cmd != second.cmd:
            yield Change("command", "command", first.cmd, second.cmd)
        for key, (old, new) in differing("", (first.params, second.params)):
            yield Change("params", key, plain(old), plain(new))
        left, right = self.one.records.get(first.name), self.two.records.get(second.name)
        for path in dict.fromkeys([*first.deps, *second.deps]):
            old, new = first.deps.get(path, NONE), second.deps.get(path, NONE)
            if old == new or (path == LOCKS and left and right):
                continue  # the packages that were installed say more than the digest of the lock files
            if path == LOCKS and NONE not in (old, new) and self._pins:
                yield from self._pins
            elif is_code(path):
                names = self._files_of_records(path, left, right) if left and right else self._files_of_git(path)
                listed = ("", f"{counted(len(names), 'file')}: {', '.join(names)}")
                yield Change("code", path, *(listed if names else (old, new)))
            elif not (history.producers(self.one.stages, path) and history.producers(self.two.stages, path)):
                yield Change("data", path, old, new)
        if left is not None and right is not None and left.digest != right.digest:
            yield from _environment(left.content["environment"], right.content["environment"])
            yield from _journals(left, right)

    @cached_property
    def _pins(self) -> list[Change]:
        """The packages whose pinned versions differ between the lock files."""
        found = []
        for side in (self.one, self.two):
            if revision := side.files.revision:
                names = [name for name in names_at(self.root, revision) if name.startswith(f"{LOCKS}/")]
                texts = [content.decode() for content in read_at(self.root, revision, names).values()]
            else:
                texts = [path.read_text("utf-8") for path in sorted((self.root / LOCKS).glob("*.lock"))]
            found.append({name: version for text in texts for name, version in pinned(text).items()})
        return [Change("package", name, old, new) for name, (old, new) in differing("", tuple(found))]

    def _files_of_records(self, path: str, left: Record, right: Record) -> list[str]:
        """The files of a folder of code that differ between two records; empty for a single file."""
        entries = [record.content["rooms"].get(path) or {} for record in (left, right)]
        ours, theirs = ({name: file["md5"] for name, file in (e.get("files") or {}).items()} for e in entries)
        return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))

    def _files_of_git(self, path: str) -> list[str]:
        """The files of a folder of code that differ between the revisions; empty for a single file."""
        return [Path(name).relative_to(path).as_posix() for name in self._changed if name.startswith(f"{path}/")]

    @cached_property
    def _changed(self) -> list[str]:
        """Every tracked file that differs between the revisions, or from the project as it is."""
        left, right = self.one.files.revision or "HEAD", self.two.files.revision
        found = git("diff", "--name-only", "--relative", "-z", left, *([right] if right else []), root=self.root)
        return (found or "").split("\0")[:-1]


def _environment(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[Change]:
    for name, (old, new) in differing("", (ours.get("packages", {}), theirs.get("packages", {}))):
        yield Change("package", name, plain(old), plain(new))
    # Without PyTorch or a GPU, the record has ``None`` instead of a group of facts.
    groups = {key for each in (ours, theirs) for key, value in each.items() if isinstance(value, Mapping)}
    rest = [
        {key: value or {} if key in groups else value for key, value in each.items() if key != "packages"}
        for each in comparable(ours, theirs)
    ]
    for name, (old, new) in differing("", tuple(rest)):
        if name == f"variables.{FLOW_RUN}":
            continue  # it names the run and cannot change its result
        if name == "cpu_flags":
            flags = [set(str(each or "").split()) for each in (old, new)]
            old, new = (" ".join(sorted(flags[at] - flags[1 - at])) or NONE for at in (0, 1))
        title = next((t for key, t in NAMES.items() if name == key or name.startswith(f"{key}.")), name)
        for group, noun in _GROUPS.items():
            title = f"{noun} {title.removeprefix(group)}" if title.startswith(group) else title
        yield Change("environment", title, plain(old), plain(new))


def _journals(left: Record, right: Record) -> Iterator[Change]:
    """Differences in the journals before the two runs."""
    journals = [record.content.get("journals", {}) for record in (left, right)]
    for path in dict.fromkeys([*journals[0], *journals[1]]):
        old, new = ((each.get(path) or {}).get("before") for each in journals)
        if old != new:
            yield Change("journal", path, _state(old), _state(new))


def _state(state: Mapping[str, Any] | None) -> str:
    return f"{state['size']:,} bytes, sha256 {state['sha256'][:12]}" if state else NONE


def plain(value: Any) -> Any:
    """Return a number, a boolean or None as it is, and everything else as text."""
    text = quoted(value) if isinstance(value, str) else str(value)
    return value if isinstance(value, (int, float, bool, type(None))) else text


_NAMED = 3
"""The number of stages that a line of text names."""


def diff(left: str, right: str | None, root: Path) -> dict[str, Any]:
    """The causes and consequences of the differences between two sides, as a JSON value.

    A side is a revision, the digest of a record, or an out such as a model folder (``models/full@REV``). The default of
    ``right`` is the current lock; for a record or an out, it is the stage as it would run now. Raises ``DataError``
    if a side is none of these.
    """
    one, two = sides_of(left, right, root)
    pairs, causes = _pairs(one, two), Causes(one, two, root)
    stages_of: dict[Change, list[str]] = {}
    follows, unexplained = [], []
    for name, first, second in pairs:
        changes = list(causes.of_stage(first, second))
        for change in changes:
            stages_of.setdefault(change, []).append(name)
        if outs := _outs(first, second):
            follows.append({"stage": name, "outs": outs})
            if first.deps == second.deps and first.params == second.params and not changes:
                unexplained.append(name)
    names = {name for name, _, _ in pairs}
    single = len(one.stages) == len(two.stages) == 1
    return {
        "left": one.title,
        "right": two.title,
        "causes": [asdict(change) | {"stages": stages} for change, stages in stages_of.items()],
        "only left": [] if single else sorted(one.stages.keys() - names),
        "only right": [] if single else sorted(two.stages.keys() - names),
        "follows": follows,
        "not explained": unexplained,
        "figures": list(_figures(one, two)),
    }


def _pairs(one: Side, two: Side) -> list[tuple[str, Locked, Locked]]:
    """The stages to compare; two sides of a single stage each are compared whatever their names are."""
    if len(one.stages) == 1 and len(two.stages) == 1:
        (first,), (second,) = one.stages.values(), two.stages.values()
        return [(first.name if first.name == second.name else f"{first.name} and {second.name}", first, second)]
    return [(name, stage, two.stages[name]) for name, stage in one.stages.items() if name in two.stages]


def _outs(first: Locked, second: Locked) -> list[str]:
    """The outs whose bytes differ; two stages with different names have no out in common, so all their outs count."""
    if first.name == second.name:
        return [path for path, md5 in second.outs.items() if first.outs.get(path) != md5]
    pairs = zip(first.outs.items(), second.outs.items(), strict=False)
    return [f"{old} and {new}" for (old, left), (new, right) in pairs if left != right]


def _figures(one: Side, two: Side) -> Iterator[dict[str, Any]]:
    """The main results of the report that differ, or the figures of the metrics of a single stage."""
    if not len(one.stages) == len(two.stages) == 1:
        yield from _results(one.files, two.files)
        return
    (first,), (second,) = one.stages.values(), two.stages.values()
    for (old, left), (new, right) in zip(first.outs.items(), second.outs.items(), strict=False):
        if left != right and old.startswith(SETTINGS.metrics) and new.startswith(SETTINGS.metrics):
            contents = [_content(one.files, left), _content(two.files, right)]
            if all(isinstance(each, Mapping) for each in contents):
                flat = [{k: v for k, v in each.items() if isinstance(v, (int, float))} for each in contents]
                for key, (before, after) in differing("", tuple(flat)):
                    yield {"figure": f"{new}#/{key}", "left": plain(before), "right": plain(after)}


def _content(files: Files, md5: str) -> Any:
    """The JSON value of an object; ``None`` if no store has it or it is not JSON."""
    file = files.object(md5)
    try:
        return json.loads(file.read_bytes()) if file else None
    except ValueError:
        return None


def _results(one: Files, two: Files) -> Iterator[dict[str, Any]]:
    try:
        left, right = one.value(SETTINGS.tables), two.value(SETTINGS.tables)
    except PathfinderError:
        return
    lines = [dict(_systems(each)) for each in (left, right)]
    for system, row in lines[1].items():
        for key, new in row.items():
            old = lines[0].get(system, {}).get(key)
            scores = [each.get("value") for each in (old, new) if isinstance(each, Mapping)]
            if len(scores) == 2 and scores[0] != scores[1]:
                yield {"figure": f"{system}, {key}", "left": scores[0], "right": scores[1]}


def _systems(tables: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of the main results by system; empty for a file with different content."""
    rows = tables.get("results") if isinstance(tables, Mapping) else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, Mapping) and isinstance(row.get("system"), str):
            yield row["system"], row


def lines_of(found: Mapping[str, Any]) -> Iterator[str]:
    """The comparison as lines of text, causes first."""
    yield f"{found['left']} -> {found['right']}"
    for cause in found["causes"]:
        yield f"  {_in_words(cause)}  [{listed(cause['stages'], _NAMED)}]"
    for side in ("left", "right"):
        if names := found[f"only {side}"]:
            yield f"  stages only in {found[side]}: {listed(names, _NAMED)}"
    if not found["causes"]:
        yield "  no input differs"
    if found["follows"]:
        yield "follows:"
    for entry in found["follows"]:
        note = "  NOT EXPLAINED by any input" if entry["stage"] in found["not explained"] else ""
        yield f"  {entry['stage']}: {', '.join(entry['outs'])}{note}"
    for entry in found["figures"]:
        yield f"  {entry['figure']}: {_rounded(entry['left'])} -> {_rounded(entry['right'])}"


def _in_words(cause: Mapping[str, Any]) -> str:
    kind, about, left, right = (cause[key] for key in ("kind", "about", "left", "right"))
    if kind == "code":
        state = {left: "new", right: "removed"}.get(NONE, "changed") if left else right
        return f"code {about} ({state})"
    return f"{about if kind in ('command', 'environment') else f'{kind} {about}'} {left} -> {right}"


def _rounded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
