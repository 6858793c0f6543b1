"""Watch processes, and files that others write."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from flows.local import processes


def soon(condition: Callable[[], object], seconds: float = 30.0) -> bool:
    """True if a condition holds now or within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(found)


def wait_for(path: Path, seconds: float = 120.0) -> str:
    """The content of a file, once it ends in a line break."""
    assert soon(lambda: path.exists() and path.read_text().endswith("\n"), seconds), f"{path} did not appear"
    return path.read_text()


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, seconds: float = 30.0) -> bool:
    """True if a process has ended or ends within ``seconds``."""
    return soon(lambda: not alive(pid), seconds)


def guardians_of(pid: int) -> list[int]:
    """The guardians (flows/local) of a process."""
    running = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [number for number in running if f"local.guardian {pid}." in processes.command_of(number)]


def working_in(root: Path) -> set[int]:
    """Live processes whose current folder is ``root`` or inside it."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").resolve().is_relative_to(root) and alive(int(entry.name)):
                found.add(int(entry.name))
    return found
