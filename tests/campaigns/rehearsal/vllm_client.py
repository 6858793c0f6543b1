"""The substitute of the ``vllm`` command: it hands its arguments to the running ``vllm_parent``.

``import vllm`` takes ten seconds, so one process imports it and forks a server for every command. This process lasts as
long as the server: each ends when the other does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main(address: str) -> None:
    """Run ``vllm`` with the arguments of this process; the status is the server's."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        request = {"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}
        content = json.dumps(request).encode()
        socket.send_fds(connection, [b"%12d" % len(content)], [1, 2])
        connection.sendall(content)
        status = connection.recv(4)
    sys.exit(int(status or b"1"))
