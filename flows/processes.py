"""Child processes that lead their own process groups, so that they can be ended with all their children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


def start(
    module: str, arguments: Sequence[str], root: Path, environment: Mapping[str, str], out: int | IO[bytes]
) -> subprocess.Popen[str]:
    """Start ``python -m MODULE ARGUMENTS`` in ``root`` without input, as the leader of a new process group.

    Both output streams go to ``out``.
    """
    interpreter = Path(sys.executable)
    # Child processes that run `python` get the interpreter of this process.
    path = os.pathsep.join([str(interpreter.parent), os.environ.get("PATH", "")])
    return subprocess.Popen(
        [str(interpreter), "-m", module, *arguments],
        cwd=root,
        env={**os.environ, "PATH": path, **environment},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )


def end(groups: Sequence[int], grace_s: float = 10.0) -> None:
    """Send SIGTERM to process groups, and SIGKILL to those that still exist ``grace_s`` seconds later."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace_s
        groups = [group for group in groups if _signal(group, number)]
        while groups and time.monotonic() < deadline:
            time.sleep(0.05)
            groups = [group for group in groups if _is_alive(group)]
        if not groups:
            return


def start_time(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 if it has ended or is a zombie."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return int(fields[19]) if fields and fields[0] != "Z" else 0


def _signal(group: int, number: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False


def _is_alive(group: int) -> bool:
    """Whether the group has a member that is not a zombie."""
    members = (fields for path in Path("/proc").glob("[0-9]*/stat") if (fields := _stat(path)))
    return any(int(fields[2]) == group and fields[0] != "Z" for fields in members)


def _stat(path: Path) -> list[str]:
    """The fields of a /proc stat file after the command's name, the state first; empty if the process has ended."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
