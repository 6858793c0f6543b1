"""The machine and the folder: disk space, locks and processes that ended runs left behind."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from evidence.dvc.history import MAIN_LOCK, read_lock
from flows.local import lock, processes
from flows.local.dvc import require_project
from flows.server import require_space
from ground.io import DataError
from infra.doctor.finding import Finding
from pathfinder.core.params import PARAMS_FILE
from pathfinder.planning import gpu_plan
from pathfinder.planning.disks import Room

_GB = 1e9

SPACE_GB = 10.0
"""A quickstart's environment, cache and storage take 5 GB; a training also writes checkpoints."""
GIT_LOCK_S = 600.0
"""No git command in this project's runs takes this long."""


def findings(root: Path) -> list[Finding]:
    """Check this machine and this folder."""
    return [*project(root), *disks(root), *stale(root)]


def project(root: Path) -> list[Finding]:
    """Find faults that would end a run in this folder before its first stage; nothing if all is in order."""
    if not (root / "dvc.yaml").is_file():
        return []
    try:
        require_project(root)
        if (root / MAIN_LOCK).exists():
            read_lock(root)
        require_space(root)
    except DataError as error:
        return [Finding("project", str(error), "follow this line")]
    return []


def disks(root: Path) -> list[Finding]:
    """Check that each disk has room for the active profile, as `pathfinder plan --gpu` estimates it."""
    if not (root / PARAMS_FILE).is_file():
        return [disk(root)]
    try:
        plan = gpu_plan.plan_of(root)
        rooms = plan.rooms
    except DataError as error:
        return [disk(root), Finding("profile", str(error), "follow this line, or write params.yaml anew")]
    return [_room(room, plan.params.profile) for room in rooms] or [disk(root)]


def _room(room: Room, profile: str) -> Finding:
    needed = f"profile {profile} needs {room.needed / _GB:.0f} GB more"
    found = f"{room.free / _GB:.0f} GB free on the disk of {room.folder}, {needed}"
    remedy = (
        "make room, or set HF_HOME to a larger disk: `pathfinder plan --gpu` lists the parts. Models that are already "
        "fetched are not counted, but the files of earlier runs are: a run that has begun needs less"
    )
    return Finding("disk", found, "" if room.suffices else remedy)


def disk(root: Path, needed_gb: float = SPACE_GB) -> Finding:
    """Check that the folder's disk has ``needed_gb`` GB left."""
    free = shutil.disk_usage(root).free / _GB
    # Not `dvc gc`, which deletes files that commits and published runs name.
    remedy = f"{needed_gb:.0f} GB are needed: make room, or let `garbage` shrink .dvc/cache (docs/operations.md)"
    return Finding("disk", f"{free:.1f} GB free", "" if free >= needed_gb else remedy)


def stale(root: Path) -> list[Finding]:
    """The folder's lock, git's lock, and processes of dead runs; one line if all is in order."""
    found = []
    if dead := lock.left_by(root):
        found.append(
            Finding("run lock", f"a run did not end properly ({dead})", "the next run cleans up: pathfinder run")
        )
    found += [
        Finding("process", f"PID {pid} of an ended run: {processes.command_of(pid)}", f"kill {pid}")
        for pid in processes.orphans(root)
    ]
    index = root / ".git" / "index.lock"
    if index.exists() and (age := time.time() - index.stat().st_mtime) > GIT_LOCK_S:
        found.append(Finding("git lock", f"{index.relative_to(root)} is {age / 60:.0f} minutes old", f"rm {index}"))
    return found or [Finding("locks", "no run, lock or process is left over")]
