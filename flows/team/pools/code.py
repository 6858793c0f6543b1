"""The code and the parameters of a stage on another machine: a commit that everyone can fetch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from evidence.audit.findings import listed
from evidence.dvc.pipeline import MAIN
from evidence.record.environment import changed_files, git
from flows.local.graph import Graph, meet
from flows.team.deployment.git import tried
from flows.team.pools.table import FILE
from ground.io import DataError
from pathfinder.core.params import PARAMS_FILE

_NAMED = 3


def committed(root: Path, graph: Graph, stages: Iterable[str]) -> str:
    """The commit with which other machines run ``stages``; raises ``DataError`` if code is not committed or pushed."""
    head = (git("rev-parse", "HEAD", root=root) or "").strip()
    if not head:
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
            f"{listed(changed, _NAMED)}: not committed; stages on other machines run committed code: commit "
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
