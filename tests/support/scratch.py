"""Temporary files of a whole test run: in memory, because a run waits for a disk a third of its time."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")  # noqa: S108 (a folder of this process below it)
_FREE_BYTES = 6 << 30
"""A run needs less than half of it."""
_NAME = "pathfinder-tests-run-"


def use_memory() -> Path | None:
    """Let this process and its children put temporary files into a new folder in memory, which the caller deletes.

    Nothing changes, and the result is None, if TMPDIR is set or there is too little memory. Folders of runs that were
    killed are deleted.
    """
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return None
    for left in _MEMORY.glob(f"{_NAME}*"):
        if not Path("/proc", left.name.removeprefix(_NAME)).exists():
            shutil.rmtree(left, ignore_errors=True)
    if min(shutil.disk_usage(_MEMORY).free, _available()) < _FREE_BYTES:
        return None
    folder = _MEMORY / f"{_NAME}{os.getpid()}"
    folder.mkdir(mode=0o700)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # TMPDIR decides again
    return folder


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder ``name`` that ``make`` fills: once per run, for all its processes. Tests must not change it."""
    base = factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"once-{name}"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "made").exists():
            make(place / name)
            (place / "made").touch()
    return place / name


def _available() -> int:
    """Bytes of memory that Linux can give to new processes; 0 on other systems."""
    path = Path("/proc/meminfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
