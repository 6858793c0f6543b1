"""A server that accepts connections, reads what clients send and never answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def stalled_server() -> Iterator[str]:
    """The address of the server, which runs during the block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepted: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):  # the end of the block
                while True:
                    accepted.append(listening.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        for connection in accepted:
            connection.close()
