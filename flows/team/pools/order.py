"""A signed order: the one stage that a run asks a machine to compute. Any launcher may carry it there.

It names code at a commit that everyone can fetch, parameters, and outs. It is a DSSE envelope: the machine computes it
only if its own clone trusts the key, so whoever can start a worker's deployment or reach a machine's launcher still
cannot choose what it computes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from evidence.audit.findings import listed
from evidence.audit.trust import trusted_keys
from evidence.dvc.history import overlap, read_pointer
from evidence.dvc.lock import entries, replace_entries
from evidence.dvc.pipeline import MAIN, read_pipeline
from evidence.dvc.stores import cache_of
from evidence.record.environment import changed_files, git
from evidence.record.signing import opened_as, sign
from evidence.remote.guard import fetch_outs, fetch_pointer
from evidence.settings import VENDOR, Form, parsed
from flows.local.dvc import Dvc
from flows.local.graph import Graph, meet
from flows.local.restore import install
from flows.team.deployment.git import commit_of, tried
from flows.team.pools.table import FILE
from ground.io import DataError
from pathfinder.core.params import PARAMS_FILE

TYPE = f"application/vnd.{VENDOR}.order+json"
FAILED = "the order failed ({}): {}"
"""The line by which a machine says the class of an error (flows.places) and its message."""
_WHERE = "the order"
_REMEDY = (
    "no key that this machine trusts signed it; commit the public key of whoever starts the run to infra/keys/ "
    "(docs/audit.md), and update the clone of this machine"
)
Outs = list[dict[str, Any]]
"""Outs as the lock has them: path, md5, size."""


class Ordered(Form):
    """A stage of a commit, with the outs that it reads by the stage that made them.

    ``params`` is the text of params.yaml, empty for the commit's own. With ``force`` the stage runs even if its result
    is known, and ``part`` (2/3) asks for a part of its work. ``remote`` has the inputs and gets the result. ``parent``
    is the flow run that waits.
    """

    stage: str
    commit: Annotated[str, Field(pattern="^[0-9a-f]{40}$|^[0-9a-f]{64}$")]
    params: str = ""
    inputs: dict[str, Outs] = Field(default_factory=dict)
    force: bool = False
    remote: str
    parent: str = ""
    part: str = ""

    def __str__(self) -> str:
        return f"{self.stage}{self.part and f' part {self.part}'} at {self.commit[:8]}"


def signed(order: Ordered) -> str:
    """The order in an envelope that this user's key signed; raises ``DataError`` as ``own_key`` does."""
    return json.dumps(sign(order.model_dump_json().encode(), TYPE))


def verified(text: str, root: Path) -> Ordered:
    """The order in an envelope; raises ``DataError`` unless a key signed it that ``root`` trusts now."""
    keys = trusted_keys(root)
    payload, signers = opened_as(TYPE, text.encode(), keys, _WHERE, _REMEDY)
    keys.require_valid(signers, _WHERE, "start the run with a key that is valid now")
    return parsed(Ordered, payload, _WHERE)


def committed(root: Path, graph: Graph, stages: Iterable[str]) -> str:
    """The commit with which other machines run ``stages``; raises ``DataError`` if code is not committed or pushed."""
    if not (head := commit_of(root, "HEAD")):
        raise DataError(f"{root}: no git commit; stages on other machines need committed code")
    read = {MAIN.as_posix(), FILE.as_posix(), *(dep for name in stages for dep in graph.stages[name].deps)}
    outs = {out for stage in graph.stages.values() for out in stage.all_outs}
    if (differ := changed_files(root=root)) is None:
        raise DataError(f"{root}: `git status` fails, so uncommitted code is unknown; correct what it names")
    changed = [
        path
        for path in sorted(differ)
        if (path.endswith(".dvc") or meet([path], read)) and not meet([path], outs)  # git may have metrics too
    ]
    if changed:
        raise DataError(
            f"{listed(changed, 3)}: not committed; stages on other machines run committed code: commit "
            f"and push, or set `pool: here` in {FILE}"
        )
    if head.encode() not in tried(root, "ls-remote", "origin").stdout:
        tried(root, "fetch", "-q", "origin")
        if not (git("branch", "-r", "--contains", head, root=root) or "").strip():
            raise DataError(f"commit {head[:12]} is not on git's origin, where workers get their code; push it")
    return head


def changed_params(root: Path) -> str:
    """The text of params.yaml if it differs from the commit's, otherwise nothing."""
    text = (root / PARAMS_FILE).read_text(encoding="utf-8") if (root / PARAMS_FILE).exists() else ""
    return "" if text == git("show", f"HEAD:./{PARAMS_FILE}", root=root) else text


def needed(root: Path, graph: Graph, name: str) -> dict[str, Outs]:
    """The outs that a stage reads, by the stage that made them, as the lock has them now."""
    locked, found = entries(root), dict[str, Outs]()
    for other in sorted(graph.upstream[name] & locked.keys()):
        if outs := [dict(out) for out in locked[other]["outs"] if meet([out["path"]], graph.stages[name].deps)]:
            found[other] = outs
    return found


def place(dvc: Dvc, name: str, inputs: Mapping[str, Outs]) -> int:
    """Put the inputs of a stage into a clone that may never have run the stages before it; returns their number.

    The stage leaves the folder's lock: DVC takes its result from the run cache, or runs the stage. Raises ``DataError``
    if dvc.yaml has no such stage, or the remote lacks an object or has different bytes.
    """
    root, stages = dvc.root, read_pipeline(dvc.root)
    if name not in stages:
        raise DataError(f"{name}: no stage of dvc.yaml at this commit")
    known = {other: stages[other].all_outs if other in stages else () for other in inputs}
    if others := [
        str(out["path"]) for other, found in inputs.items() for out in found if out["path"] not in known[other]
    ]:
        raise DataError(f"{name}: the inputs name {others[0]!r}, which is not an output of dvc.yaml at this commit")
    deps = stages[name].deps
    files = (path for path in sorted(root.glob("*.dvc")) if path.is_file())
    pointers = [path for path in files if meet(read_pointer(root, path).outs, deps)]
    for pointer in pointers:
        fetch_pointer(root, pointer.name)
    made = {other: {"cmd": stages[other].cmd, "outs": outs} for other, outs in inputs.items()}
    replace_entries(root, made, dropped=[name])
    outs = {str(out["path"]): str(out["md5"]) for found in inputs.values() for out in found}
    count = fetch_outs(root, outs, deps) if outs else 0
    folders = [out for out, md5 in outs.items() if md5.endswith(".dir")]
    # Take only the part of a folder that the stage reads.
    parts = [dep if dep.startswith(f"{out}/") else out for out in folders for dep in deps if overlap(out, dep)]
    targets = sorted({*parts, *(pointer.name for pointer in pointers)})
    if targets:
        dvc.checkout(*targets, force=True)
    for path in outs.keys() - folders:
        install(root / path, cache_of(root), outs[path])
    return count
