"""``lineage diff``: what differs between two revisions, records, or models, and the outs and figures that follow.

A side holds stages with their command, parameters, inputs and outs, from the lock, and the record of the run, if one is
here, with the environment and the journals. A difference of an input that a stage of the same side made is not listed
as a cause: its own causes are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError, PathfinderError
from pathfinder.core.settings import read_yaml
from pathfinder.lineage import history
from pathfinder.lineage.claims import differing
from pathfinder.lineage.history import Locked, Record
from pathfinder.lineage.verbs.revision import known_commit, names_at, read_at
from pathfinder.lineage.verbs.targets import Files, maker_of, target_of
from pathfinder.lineage.verbs.views import record_named
from pathfinder.provenance.environment import describe_environment, git
from pathfinder.provenance.hashing import digest_path
from pathfinder.provenance.identity import LOCKS, is_code
from pathfinder.provenance.pipeline import read_pipelines, value_at

NONE = "nothing"
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
"""The facts of an environment that have a title of their own."""
TABLES = "reports/tables.json"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;]+)", re.MULTILINE)
_WHILE_RUNNING = ("torch", "cuda", "variables")
_NO_INPUTS = ("PATHFINDER_FLOW_RUN",)
"""Variables that name a run and cannot change its result."""
Records = Callable[[str], list[Record]]


@dataclass(slots=True)
class Side:
    """One side of a comparison: its title, its stages, and where its files can be read."""

    title: str
    stages: dict[str, Locked]
    records: dict[str, Record] = field(default_factory=dict)
    files: Files | None = None
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A difference of an input: its kind, what it is about, both values, and the stages that it concerns."""

    kind: str
    about: str
    left: Any
    right: Any


def diff(left: str, right: str | None, root: Path) -> dict[str, Any]:
    """The causes and consequences of the differences between two sides.

    A side is a revision, the digest of a record, or an out such as a model folder (``models/full@REV``). ``right``
    defaults to the dvc.lock here; for a record or an out, to what its stage would read now. Raises ``DataError``
    if a side is none of these.
    """
    records = cache(lambda stage: history.known_records(root, stage))
    one = _side(left, root, records)
    if right is None and len(one.stages) == 1:
        two = _now(next(iter(one.stages)), root, next(iter(one.records.values()), None))
    else:
        two = _side(right, root, records)
    for side, other in ((one, two), (two, one)):
        if len(side.stages) == 1:
            other.stages = {n: s for n, s in other.stages.items() if len(other.stages) == 1 or n in side.stages}
    if not one.stages or not two.stages:
        raise DataError(f"{one.title} and {two.title} have no stage in common")
    pairs, pins = _pairs(one, two), cache(lambda: list(_pins(one, two, root)))
    causes: dict[Change, list[str]] = {}
    follows, unexplained = [], []
    for name, first, second in pairs:
        changes = list(_changes(one, two, first, second, root, pins))
        for change in changes:
            causes.setdefault(change, []).append(name)
        if outs := _outs(first, second):
            follows.append({"stage": name, "outs": outs})
            if first.deps == second.deps and first.params == second.params and not changes:
                unexplained.append(name)
    names = {name for name, _, _ in pairs}
    single = len(one.stages) == len(two.stages) == 1
    return {
        "left": one.title,
        "right": two.title,
        "causes": [
            {"kind": c.kind, "about": c.about, "left": c.left, "right": c.right, "stages": stages}
            for c, stages in causes.items()
        ],
        "only left": [] if single else sorted(one.stages.keys() - names),
        "only right": [] if single else sorted(two.stages.keys() - names),
        "follows": follows,
        "not explained": unexplained,
        "figures": list(_figures(one, two)),
    }


def _side(text: str | None, root: Path, records: Records) -> Side:
    if text is None or (known_commit(root, text) and not (root / text).exists()):
        files = Files(root, text)
        stages = {n: s for n, s in files.stages.items() if s.file == history.MAIN_LOCK or not s.cmd}
        made = {name: record for name, stage in stages.items() if (record := _made(records, stage))}
        return Side(text or "the dvc.lock here", stages, made, files, text)
    if record := record_named(text, root):
        content = record.content
        stage = Locked(content["stage"], content["cmd"], record.inputs, record.outputs, content["params"])
        return Side(f"record {record.digest[:12]}", {stage.name: stage}, {stage.name: record}, Files(root))
    target = target_of(text, root)
    files = Files(root, target.revision)
    maker = maker_of(files.stages, target.name) or files.stages.get(target.name)
    if maker is None:
        raise DataError(f"{text}: neither a revision, nor a record's digest, nor an output of a stage")
    found = _made(records, maker)
    return Side(str(target), {maker.name: maker}, {maker.name: found} if found else {}, files, target.revision)


def _now(name: str, root: Path, earlier: Record | None) -> Side:
    """A stage as it would run now: parameters, code and environment of now; data and outs of dvc.lock.

    Facts that only a running stage knows are taken from ``earlier``.
    """
    locked, defined = history.read_lock(root).get(name), read_pipelines(root).get(name)
    if locked is None or defined is None:
        raise DataError(f"{name}: not a stage of dvc.yaml and dvc.lock here; name a second side")
    params = read_yaml(root / defined.params_file) if defined.params else {}
    rooms = {path: digest_path(root / path) for path in defined.deps if is_code(path) and (root / path).exists()}
    deps = {path: locked.deps.get(path, NONE) for path in defined.deps} | {p: d.md5 for p, d in rooms.items()}
    values = {key: value_at(params, key, NONE) for key in defined.params}
    stage = Locked(name, defined.cmd, deps, locked.outs, values)
    known = earlier.content if earlier else {}
    environment = {k: v for k, v in describe_environment().items() if k not in _WHILE_RUNNING}
    environment |= {key: known.get("environment", {}).get(key) for key in _WHILE_RUNNING}
    content = known | {"environment": environment, "rooms": {path: d.as_json() for path, d in rooms.items()}}
    records = {name: Record(root, "", content)} if earlier else {}
    return Side("now", {name: stage}, records, Files(root))


def _made(records: Records, stage: Locked) -> Record | None:
    return next((record for record in records(stage.name) if record.made(stage)), None)


def _pairs(one: Side, two: Side) -> list[tuple[str, Locked, Locked]]:
    """The stages to compare; two sides of a single stage each are compared whatever their names are."""
    if len(one.stages) == 1 and len(two.stages) == 1:
        (first,), (second,) = one.stages.values(), two.stages.values()
        return [(first.name if first.name == second.name else f"{first.name} and {second.name}", first, second)]
    return [(name, stage, two.stages[name]) for name, stage in one.stages.items() if name in two.stages]


def _changes(
    one: Side, two: Side, first: Locked, second: Locked, root: Path, pins: Callable[[], list[Change]]
) -> Iterator[Change]:
    if first.cmd != second.cmd:
        yield Change("command", "command", first.cmd, second.cmd)
    for key, (old, new) in differing("", (first.params, second.params)):
        yield Change("params", key, _plain(old), _plain(new))
    left, right = one.records.get(first.name), two.records.get(second.name)
    for path in dict.fromkeys([*first.deps, *second.deps]):
        old, new = first.deps.get(path, NONE), second.deps.get(path, NONE)
        if old == new or (path == LOCKS and left and right):
            continue  # the packages that were installed say more than the digest of the lock files
        if path == LOCKS and NONE not in (old, new) and (packages := pins()):
            yield from packages
        elif is_code(path):
            yield Change("code", path, *_files_changed(path, left, right, one, two, root) or (old, new))
        elif not (history.producers(one.stages, path) and history.producers(two.stages, path)):
            yield Change("data", path, old, new)
    if left is not None and right is not None and left.digest != right.digest:
        yield from _around(left, right)


def _pins(one: Side, two: Side, root: Path) -> Iterator[Change]:
    """The pinned packages that differ between the lock files of two sides."""
    found = []
    for side in (one, two):
        names = [name for name in names_at(root, side.revision or "HEAD") if name.startswith(f"{LOCKS}/")]
        if side.revision:
            texts = [content.decode() for content in read_at(root, side.revision, names).values()]
        else:
            texts = [path.read_text("utf-8") for path in sorted((root / LOCKS).glob("*.lock"))]
        found.append({name: version for text in texts for name, version in _PIN.findall(text)})
    for name, (old, new) in differing("", tuple(found)):
        yield Change("package", name, old, new)


def _around(left: Record, right: Record) -> Iterator[Change]:
    """Differences of the environments and journals of two runs."""
    ours, theirs = left.content["environment"], right.content["environment"]
    for name, (old, new) in differing("", (ours.get("packages", {}), theirs.get("packages", {}))):
        yield Change("package", name, _plain(old), _plain(new))
    # Without PyTorch or a GPU, the record has ``None`` instead of a group of facts.
    groups = {key for each in (ours, theirs) for key, value in each.items() if isinstance(value, Mapping)}
    rest = [
        {key: value or {} if key in groups else value for key, value in each.items() if key != "packages"}
        for each in (ours, theirs)
    ]
    for name, (old, new) in differing("", tuple(rest)):
        if name.removeprefix("variables.") in _NO_INPUTS:
            continue
        if name == "cpu_flags":
            flags = [set(str(each or "").split()) for each in (old, new)]
            old, new = (" ".join(sorted(flags[at] - flags[1 - at])) or NONE for at in (0, 1))
        title = next((t for key, t in NAMES.items() if name == key or name.startswith(f"{key}.")), name)
        yield Change("environment", title.replace("variables.", "variable "), _plain(old), _plain(new))
    journals = [record.content.get("journals", {}) for record in (left, right)]
    for path in dict.fromkeys([*journals[0], *journals[1]]):
        old, new = ((each.get(path) or {}).get("before") for each in journals)
        if old != new:
            yield Change("journal", path, _state(old), _state(new))


def _state(state: Mapping[str, Any] | None) -> str:
    return f"{state['size']:,} bytes, sha256 {state['sha256'][:12]}" if state else NONE


def _files_changed(
    path: str, left: Record | None, right: Record | None, one: Side, two: Side, root: Path
) -> tuple[str, str] | None:
    """The files that differ in a folder of code, from the records or from git, as the right value."""
    if left and right:
        sides = [_listing(record, path) for record in (left, right)]
        names = sorted(n for n in sides[0].keys() | sides[1].keys() if sides[0].get(n) != sides[1].get(n))
    else:
        ends = [side.revision or "HEAD" for side in (one, two)]
        names = _files_changed_in_git(root, tuple(ends if two.revision else ends[:1]), path)
    names = [name for name in names if name != "."]
    return ("", f"{len(names)} file{'s' * (len(names) != 1)}: {', '.join(names)}") if names else None


@cache
def _files_changed_in_git(root: Path, ends: tuple[str, ...], path: str) -> list[str]:
    found = git("diff", "--name-only", "--relative", *ends, "--", path, root=root) or ""
    return [Path(name).relative_to(path).as_posix() for name in found.splitlines()]


def _listing(record: Record, path: str) -> dict[str, str]:
    entry = record.content["rooms"].get(path) or {}
    return {name: inner["md5"] for name, inner in (entry.get("files") or {}).items()}


def _outs(first: Locked, second: Locked) -> list[str]:
    """The outs whose bytes differ; two stages with different names have none in common, so all of theirs count."""
    if first.name == second.name:
        return [path for path, md5 in second.outs.items() if first.outs.get(path) != md5]
    pairs = zip(first.outs.items(), second.outs.items(), strict=False)
    return [f"{old} and {new}" for (old, left), (new, right) in pairs if left != right]


def _figures(one: Side, two: Side) -> Iterator[dict[str, Any]]:
    """The main results of the report that differ, or the figures of the metrics of a single stage."""
    if one.files is None or two.files is None:
        return
    if len(one.stages) > 1 and len(two.stages) > 1:
        yield from _results(one.files, two.files)
        return
    (first,), (second,) = one.stages.values(), two.stages.values()
    for (old, left), (new, right) in zip(first.outs.items(), second.outs.items(), strict=False):
        if left != right and old.startswith("metrics/") and new.startswith("metrics/"):
            contents = [_content(one.files, left), _content(two.files, right)]
            if all(isinstance(each, Mapping) for each in contents):
                flat = [{k: v for k, v in each.items() if isinstance(v, (int, float))} for each in contents]
                for key, (before, after) in differing("", tuple(flat)):
                    yield {"figure": f"{new}#/{key}", "left": _plain(before), "right": _plain(after)}


def _content(files: Files, md5: str) -> Any:
    """The JSON value of an object; ``None`` if it is not here or not JSON."""
    file = files.object(md5)
    try:
        return json.loads(file.read_bytes()) if file else None
    except ValueError:
        return None


def _results(one: Files, two: Files) -> Iterator[dict[str, Any]]:
    try:
        left, right = one.value(TABLES), two.value(TABLES)
    except PathfinderError:
        return
    lines = [{row["system"]: row for row in each["results"]} for each in (left, right)]
    for system, row in lines[1].items():
        for key, new in row.items():
            old = lines[0].get(system, {}).get(key)
            scores = [each.get("value") for each in (old, new) if isinstance(each, Mapping)]
            if len(scores) == 2 and scores[0] != scores[1]:
                yield {"figure": f"{system}, {key}", "left": scores[0], "right": scores[1]}


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def lines_of(found: Mapping[str, Any]) -> Iterator[str]:
    """The comparison as lines of text, causes first."""
    yield f"{found['left']} -> {found['right']}"
    for cause in found["causes"]:
        if cause["kind"] == "code" and not cause["left"]:
            text = f"code {cause['about']} ({cause['right']})"
        elif cause["kind"] == "code":
            word = {cause["left"]: "new", cause["right"]: "removed"}.get(NONE, "changed")
            text = f"code {cause['about']} ({word})"
        elif cause["kind"] == "environment":
            text = f"{cause['about']} {cause['left']} -> {cause['right']}"
        else:
            what = cause["about"] if cause["kind"] == "command" else f"{cause['kind']} {cause['about']}"
            text = f"{what} {cause['left']} -> {cause['right']}"
        yield f"  {text}  [{_named(cause['stages'])}]"
    for side in ("left", "right"):
        if names := found[f"only {side}"]:
            yield f"  stages only in {found[side]}: {_named(names)}"
    if not found["causes"]:
        yield "  no input differs"
    if found["follows"]:
        yield "follows:"
    for entry in found["follows"]:
        note = "  NOT EXPLAINED by any input" if entry["stage"] in found["not explained"] else ""
        yield f"  {entry['stage']}: {', '.join(entry['outs'])}{note}"
    for entry in found["figures"]:
        yield f"  {entry['figure']}: {_rounded(entry['left'])} -> {_rounded(entry['right'])}"


def _named(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _rounded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
