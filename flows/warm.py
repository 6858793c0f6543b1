"""DVC in a process that is warm: it has imported DVC, and forks a copy of itself for each command.

``dvc repro`` takes six seconds of CPU time beside a stage of this pipeline. One imports DVC. Four read and write all
of dvc.lock with a parser that keeps comments, while no other command of DVC can start. Here a command imports nothing,
and formats only the entries that it changed. The lock gets the same bytes, at once instead of in parts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

from evidence.dvc.history import MAIN_LOCK
from evidence.dvc.lock import replace_blocks
from flows import processes
from ground.io import write_text
from ground.settings import read_yaml

_IMPORTED = (
    *("dvc.cli.parser", "dvc.data_cloud", "dvc.dvcfile", "dvc.lock", "dvc.scm", "dvc.utils.strictyaml", "ruamel.yaml"),
    *(f"dvc.repo.{name}" for name in ("artifacts", "datasets", "metrics", "open_repo", "params", "plots", "stage")),
    *("dvc.cachemgr", "dvc_data.hashfile.status", "scmrepo.git.backend.dulwich", "dulwich.worktree"),
)
"""The modules that `dvc repro` loads, found by comparing ``sys.modules`` before and after it."""
_MOST_BYTES = 2**17
"""Of a request, which is one message. A longer one has a process of its own."""


class Command:
    """A command of the warm process, with the part of ``subprocess.Popen`` that its caller needs."""

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
    """The warm process of a folder, which ends with the process that started it. ``start`` is thread-safe."""

    def __init__(self, root: Path) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mark = {processes.MARK: processes.new_mark(root)}
        with theirs:
            self._process = processes.start("flows.warm", [], root, mark, subprocess.DEVNULL, theirs.fileno())

    def start(self, arguments: Sequence[str], root: Path, environment: Mapping[str, str]) -> Command:
        """Start ``dvc ARGUMENTS`` in ``root``, the leader of a process group, with both streams in ``stdout``.

        Raises ``OSError`` if the request is too long or the process has ended.
        """
        everything = {**processes.inherited(), **environment}
        request = json.dumps({"arguments": [*arguments], "root": str(root.absolute()), "environment": everything})
        if len(request) > _MOST_BYTES:
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
        processes.end([self._process.pid])
        self._process.wait()


def serve(control: socket.socket) -> None:
    """Fork a process for each request, until the other side of ``control`` is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets a command that has ended
    while True:
        request, files, _, _ = socket.recv_fds(control, _MOST_BYTES, 2)
        if not request:
            return
        if os.fork() == 0:
            control.close()
            _run(json.loads(request), socket.socket(fileno=files[0]), files[1])
        for file in files:
            os.close(file)


def _run(request: dict[str, Any], answer: socket.socket, out: int) -> NoReturn:
    """Run a command in this process, and end it."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(out, stream)
        os.close(out)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["root"])
        sys.argv = ["dvc", *request["arguments"]]
        answer.send(str(os.getpid()).encode())
        code = import_module("dvc.cli").main(request["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        answer.send(str(code).encode())
        os._exit(code)


@contextlib.contextmanager
def modify_lock(path: str, fs: Any = None) -> Iterator[dict[str, Any]]:
    """In place of DVC's ``modify_yaml`` for dvc.lock: yields the content, and writes the stages that were changed."""
    from dvc.utils import serialize  # type: ignore[import-untyped]  # the client does not import DVC

    file = Path(path)
    data = read_yaml(file) if file.name == MAIN_LOCK and file.exists() else {}
    before = {**(data.get("stages") or {})}
    if not before:
        with serialize.modify_yaml(path, fs=fs) as data:
            yield data
        return
    yield data
    stages = {name: entry for name, entry in data["stages"].items() if before.get(name) is not entry}
    write_text(file, replace_blocks(file.read_text(encoding="utf-8"), serialize.dumps_yaml({"stages": stages})))


if __name__ == "__main__":
    for _name in _IMPORTED:
        import_module(_name)
    setattr(import_module("dvc.dvcfile"), "modify_yaml", modify_lock)  # noqa: B010  # mypy knows no such attribute
    _control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # commands have no input
    serve(_control)
