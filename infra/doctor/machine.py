"""The machine and the folder: disk space, locks and processes that ended runs left behind."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from flows import processes
from flows.guard import lock
from infra.doctor.finding import Finding

SPACE_GIB = 10.0
"""A quickstart's environment, cache and storage take 5 GB; a training also writes checkpoints."""
GIT_LOCK_S = 600.0
"""No git command of this project's runs takes so long."""


def findings(root: Path) -> list[Finding]:
    """What is wrong on this machine and in this folder."""
    return [disk(root), *stale(root)]


def disk(root: Path, needed_gib: float = SPACE_GIB) -> Finding:
    """Whether the folder's disk has ``needed_gib`` GiB left."""
    free = shutil.disk_usage(root).free / 2**30
    # Not `dvc gc`, which deletes what commits and published runs name.
    remedy = f"{needed_gib:.0f} GiB are needed: the deployment `garbage` shrinks .dvc/cache (docs/operations.md)"
    return Finding("disk", f"{free:.1f} GiB free", "" if free >= needed_gib else remedy)


def stale(root: Path) -> list[Finding]:
    """The folder's lock, git's lock, and processes of dead runs; one line if all is in order."""
    found = []
    if dead := lock.left_by(root):
        found.append(
            Finding("run lock", f"a run did not end properly ({dead})", "the next run cleans up: pathfinder run")
        )
    found += [
        Finding("process", f"PID {left.pid} of an ended run: {processes.command_of(left.pid)}", f"kill {left.pid}")
        for left in processes.orphans(root)
    ]
    index = root / ".git" / "index.lock"
    if index.exists() and (age := time.time() - index.stat().st_mtime) > GIT_LOCK_S:
        found.append(Finding("git lock", f"{index.relative_to(root)} is {age / 60:.0f} minutes old", f"rm {index}"))
    return found or [Finding("locks", "no run, lock or process is left over")]
