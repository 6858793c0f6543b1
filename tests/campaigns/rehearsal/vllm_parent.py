"""Import vLLM once, then fork a server for every ``vllm serve``.

Run: python -m tests.campaigns.rehearsal.vllm_parent ADDRESS LOG MODEL

It runs in the environment of ``material.vllm_python``. ``LOG`` is the folder of the servers' records.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path

from tests.campaigns.rehearsal.vllm_server import serve, warm_up


def main(address: str, log: Path, model: str) -> None:
    """Fork a server per connection, until this process is ended; ``model`` is any model folder."""
    warm_up(model)
    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _child(connection, log)
            connection.close()


def _reap(*_: object) -> None:
    """Wait for the servers that have ended, so that their CPU time counts as this process's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _child(connection: socket.socket, log: Path) -> None:
    """Take over the client's output, folder and environment, and end with it."""
    size, descriptors, _, _ = socket.recv_fds(connection, 12, 2)
    with connection.makefile("rb") as reader:
        request = json.loads(reader.read(int(size)))
    for given, own in zip(descriptors, (1, 2), strict=True):
        os.dup2(given, own)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])

    def end_with_the_client() -> None:
        with contextlib.suppress(OSError):
            connection.recv(1)
        os._exit(0)

    threading.Thread(target=end_with_the_client, daemon=True).start()
    status = 0
    try:
        serve(request["arguments"], log)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(b"%4d" % status)
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
