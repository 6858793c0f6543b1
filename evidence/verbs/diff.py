"""``lineage diff``: which inputs differ between two sides, and which outs and figures differ in consequence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evidence.audit.claims import NONE, differing
from evidence.audit.findings import listed
from evidence.dvc.history import Locked
from evidence.settings import SETTINGS
from evidence.verbs.causes import Causes, Change, Side, plain, sides_of
from evidence.verbs.targets import Files
from ground.io import PathfinderError

TABLES = SETTINGS.tables
_NAMED = 3
"""The stages that are named per line of text."""


def diff(left: str, right: str | None, root: Path) -> dict[str, Any]:
    """The causes and consequences of the differences between two sides, as a JSON value.

    A side is a revision, the digest of a record, or an out such as a model folder (``models/full@REV``). The default of
    ``right`` is the current lock; for a record or an out, it is what its stage would read now. Raises ``DataError``
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
    """The outs whose bytes differ; two stages with different names have none in common, so all of theirs count."""
    if first.name == second.name:
        return [path for path, md5 in second.outs.items() if first.outs.get(path) != md5]
    pairs = zip(first.outs.items(), second.outs.items(), strict=False)
    return [f"{old} and {new}" for (old, left), (new, right) in pairs if left != right]


def _figures(one: Side, two: Side) -> Iterator[dict[str, Any]]:
    """The main results of the report that differ, or the figures of the metrics of a single stage."""
    if len(one.stages) > 1 and len(two.stages) > 1:
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
        yield f"  {text}  [{listed(cause['stages'], _NAMED)}]"
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


def _rounded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
