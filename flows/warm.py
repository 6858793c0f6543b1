"""A process that keeps DVC and PyTorch imported and forks a copy of itself for each command: ``flows.forks``.

``dvc repro`` takes three seconds of CPU time beside a stage of this pipeline, and importing PyTorch another two. With
37 stages, that is half as much as all their work.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from flows import processes

_CODE = Path(__file__).parents[1]
MOST_BYTES = 2**17
"""Of a request, which is one message. A command with a longer one has a process of its own."""


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
    """The warm process of a folder, which ends with the process that started it. ``start`` is thread-safe.

    ``environment`` are the variables of all commands beside the inherited ones.
    """

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = {**environment, processes.MARK: processes.new_mark(root)}
        with theirs:
            self._process = processes.start("flows.forks", [], _CODE, variables, subprocess.DEVNULL, theirs.fileno())

    def start(self, arguments: Sequence[str], root: Path, environment: Mapping[str, str]) -> Command:
        """Start ``dvc ARGUMENTS`` in ``root``, the leader of a process group, with both streams in ``stdout``.

        Raises ``OSError`` if the request is too long or the process has ended.
        """
        everything = {**processes.inherited(), **environment}
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
        processes.end([self._process.pid])
        self._process.wait()
