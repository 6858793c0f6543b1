"""Child processes that lead their own process groups and carry a mark, so that all their children can be ended.

The mark is an environment variable: every descendant inherits it, even if it leaves the process group. It names the
process that started them: if that process was killed, the mark finds the processes that it left behind.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

MARK = "STAGE_OWNER"
"""The variable ``<pid>.<start time>.<number>:<place>`` of owned processes; records do not keep it."""
_MARK = re.compile(r"\d+\.\d+\.\d+:\S+ \S+ \S+")
_numbers = itertools.count(1)
_CODE = Path(__file__).parents[2]
ONLY_DVC = "--only-dvc"
"""The option of ``flows.local.forks`` with which every stage is a separate process."""
MOST_BYTES = 2**17
"""The longest request for a fork, which is one message. A command with a longer one becomes a new process."""


def place(root: Path) -> str:
    """The place of a folder's processes, with spaces between: host, boot, and the folder's device and inode.

    A folder keeps its place when it is moved; a copy or a restored backup has a different place, whatever its path. All
    have the same files, so a file that names a process also names the place. The boot includes the namespace
    of process numbers: a container shares the boot of its host, but not the numbers.
    """
    boot, numbers = Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.stat("/proc/self/ns/pid").st_ino
    folder = root.stat()
    return f"{platform.node() or 'localhost'} {boot}:{numbers} {folder.st_dev}:{folder.st_ino}"


def is_of_folder(recorded: str, root: Path) -> bool:
    """Return whether a recorded place is this folder, even if the machine was started again and renumbered devices."""
    if is_here(recorded, root):
        return True
    _, boot, folder = place(root).split(" ")
    before = recorded.split(" ")
    return len(before) == 3 and before[1] != boot and before[2].partition(":")[2] == folder.partition(":")[2]


def is_here(recorded: str, root: Path) -> bool:
    """Return whether a recorded place is this folder since the machine was started; its name may have changed."""
    return recorded.split(" ")[1:] == place(root).split(" ")[1:]


def owner_prefix() -> str:
    """The beginning of the marks of everything that this process starts."""
    return f"{os.getpid()}.{start_time(os.getpid())}."


def new_mark(root: Path) -> str:
    """A mark for one child in ``root`` and its descendants."""
    return f"{owner_prefix()}{next(_numbers)}:{place(root)}"


def owner(mark: str) -> int:
    """The process that started the processes with a mark, or 0 if it has ended."""
    pid, started, _ = mark.partition(":")[0].split(".")
    return int(pid) if start_time(int(pid)) == int(started) else 0


def owned(beginning: str = "") -> dict[int, str]:
    """All live processes of this user whose mark has this beginning, with their marks."""
    wanted, found = f"{MARK}=".encode(), dict[int, str]()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError, ValueError):
            content, pid = path.read_bytes(), int(path.parts[2])
            for entry in content.split(b"\0") if wanted in content else ():
                mark = entry.removeprefix(wanted).decode(errors="replace")
                is_marked = entry.startswith(wanted) and _MARK.match(mark) and mark.startswith(beginning)
                if is_marked and start_time(pid):
                    found[pid] = mark
    return found


def orphans(root: Path) -> dict[int, str]:
    """The processes that were started for ``root`` by a process that has ended, with their marks."""
    return {pid: mark for pid, mark in owned().items() if is_here(mark.partition(":")[2], root) and not owner(mark)}


def end_owned(beginning: str) -> None:
    """End every process whose mark has this beginning, also new ones, as ``end`` ends groups."""
    _end(lambda: {*owned(beginning)}, os.kill, 10.0)


def command_of(pid: int) -> str:
    """The command line of a process without its interpreter; empty if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    words = words[1:] if Path(words[0]).name.startswith("python") else [Path(words[0]).name, *words[1:]]
    return " ".join(word for word in words if word)[:200]


def start(
    module: str,
    arguments: Sequence[str],
    root: Path,
    environment: Mapping[str, str],
    out: int | IO[bytes],
    stdin: int | IO[bytes] = subprocess.DEVNULL,
) -> subprocess.Popen[str]:
    """Start ``python -m MODULE ARGUMENTS`` in ``root``, the leader of a process group, with both streams in ``out``.

    Without a module, the arguments are a command. Its environment is ``inherited`` with ``environment``.
    """
    return subprocess.Popen(
        [*((sys.executable, "-m", module) if module else ()), *arguments],
        cwd=root,
        env={**inherited(), **environment},
        stdin=stdin,
        stdout=out,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )


class Command:
    """A command in a fork, with the part of ``subprocess.Popen`` that its caller needs."""

    def __init__(self, pid: int, stdout: IO[str], answer: socket.socket) -> None:
        self.pid, self.stdout, self._answer = pid, stdout, answer
        self._code: int | None = None

    def wait(self) -> int:
        """Wait for the exit status; -9 if the command was killed."""
        if self._code is None:
            self._code = int(self._answer.recv(16) or -signal.SIGKILL)
            self._answer.close()
        return self._code


class Warm:
    """The process of ``flows.local.forks`` for a folder, which ends with this process. ``start`` is thread-safe.

    ``dvc repro`` takes three seconds of CPU time without its stage, and importing PyTorch another two. For 37 stages,
    that is half as much as all their work. ``environment`` is added to the inherited variables of all commands.
    """

    def __init__(self, root: Path, environment: Mapping[str, str], has_other_code: bool = False) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables, words = {**environment, MARK: new_mark(root)}, [ONLY_DVC] if has_other_code else []
        with theirs:
            self._process = start("flows.local.forks", words, _CODE, variables, subprocess.DEVNULL, theirs.fileno())

    def start(self, arguments: Sequence[str], root: Path, environment: Mapping[str, str]) -> Command:
        """Start ``dvc ARGUMENTS`` in ``root``, the leader of a process group, with both streams in ``stdout``.

        Raises ``OSError`` if the request is too long or the process has ended.
        """
        everything = {**inherited(), **environment}
        request = json.dumps({"arguments": [*arguments], "root": str(root.absolute()), "environment": everything})
        if len(request) > MOST_BYTES:
            raise OSError("the environment is too large")
        answer, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read, write = os.pipe()
        stdout = os.fdopen(read, encoding="utf-8", errors="replace")
        try:
            with theirs:
                socket.send_fds(self._socket, [request.encode()], [theirs.fileno(), write])
            if not (pid := answer.recv(16)):
                raise OSError("the process has ended")
        except OSError:
            stdout.close()
            answer.close()
            raise
        finally:
            os.close(write)
        return Command(int(pid), stdout, answer)

    def stop(self) -> None:
        """End the process; commands that run are not ended."""
        self._socket.close()
        end([self._process.pid])
        self._process.wait()


def inherited() -> dict[str, str]:
    """The environment of a child: ``python`` is this one, and Prefect's variables of the present run are left out."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT__")} | {"PATH": path}


def end(groups: Sequence[int], grace_s: float = 10.0) -> None:
    """Send SIGTERM to process groups, and SIGKILL to the groups that still exist ``grace_s`` seconds later."""
    _end(lambda: set(filter(_is_alive, groups)), os.killpg, grace_s)


def _end(alive: Callable[[], set[int]], kill: Callable[[int, int], None], grace_s: float) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline, signalled = time.monotonic() + grace_s, set[int]()
        while (found := alive()) and time.monotonic() < deadline:
            for each in found - signalled:
                with contextlib.suppress(ProcessLookupError):
                    kill(each, number)
            signalled |= found
            time.sleep(0.05)


def start_time(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 if it has ended or is a zombie."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return int(fields[19]) if fields and fields[0] != "Z" else 0


def listens(pid: int, port: int) -> bool:
    """Return whether this very process listens on a TCP port of this machine."""
    import psutil  # type: ignore[import-untyped]  # only the starter of a server needs its memory

    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid).net_connections("tcp")
        return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in found)
    return False


def _is_alive(group: int) -> bool:
    """Return whether the group has a member that is not a zombie."""
    members = (fields for path in Path("/proc").glob("[0-9]*/stat") if (fields := _stat(path)))
    return any(int(fields[2]) == group and fields[0] != "Z" for fields in members)


def _stat(path: Path) -> list[str]:
    """The fields of a /proc stat file after the command's name, the state first; empty if the process has ended."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
