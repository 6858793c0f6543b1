"""A receiver of notices: an HTTP server on this machine that keeps what a Prefect server sends."""

from __future__ import annotations

import json
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any

from tests.flows.watch import soon
from tests.support.servers import JSONHandler


class Receiver:
    """An HTTP server that keeps what it is sent, with the time."""

    def __init__(self) -> None:
        self.messages: list[tuple[float, dict[str, Any]]] = []
        receiver = self

        class Handler(JSONHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.messages.append((time.time(), content))
                self.send_response(204)
                self.end_headers()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/told?token=secret"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def told_of(self, run: str, seconds: float) -> tuple[float, dict[str, Any]]:
        """The first message that names a run, and when it came."""

        def found() -> list[tuple[float, dict[str, Any]]]:
            return [(when, message) for when, message in self.messages if run in json.dumps(message)]

        assert soon(found, seconds), self.messages
        return found()[0]
