"""An S3 server (moto) that can be killed, started again at the same port, and disturb a share of the requests."""

from __future__ import annotations

import logging
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from tests.support.s3 import s3_bucket, s3_environment

TROUBLES = ("refused", "reset before", "reset after", "cut off", "slow", "wrong tag")
"""The disturbances of a request: status 503, a reset connection before or after the request is done, half of the body,
an answer after half a second, or an entity tag that belongs to no object."""


class FaultyStore:
    """The server. Its objects stay when it is killed.

    ``refuses`` is the share of requests that get status 503, ``disturbs`` the share that meets one of ``TROUBLES``;
    ``disturbed`` counts the latter.
    """

    def __init__(self, seed: int) -> None:
        self.refuses = self.disturbs = 0.0
        self.disturbed = 0
        self._random = random.Random(seed)
        self._application = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer | None = None
        self._port = 0

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, or start it again."""
        if self._server is None:
            self._server = make_server(
                "127.0.0.1", self._port, self._answer, threaded=True, request_handler=MotoRequestHandler
            )
            self._port = self._server.server_address[1]
            threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def kill(self) -> None:
        """Close its port; connections are refused from then on."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _answer(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if self._random.random() < self.refuses:
            return _refused(respond)
        if self._random.random() < self.disturbs:
            self.disturbed += 1
            return self._disturbed(self._random.choice(TROUBLES), environ, respond)
        answer: Iterable[bytes] = self._application(environ, respond)
        return answer

    def _disturbed(self, trouble: str, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if trouble == "refused":
            return _refused(respond)
        if trouble == "reset before":
            return _reset(environ)
        if trouble == "slow":
            time.sleep(0.5)
        started: list[Any] = []
        body = b"".join(self._application(environ, lambda *given: started.extend(given)))
        if trouble == "reset after":
            return _reset(environ)
        status, headers = started[:2]
        if trouble == "wrong tag":
            headers = [(name, '"0"' if name.lower() == "etag" else value) for name, value in headers]
        respond(status, headers)
        return [body[: len(body) // 2] if trouble == "cut off" else body]


def _refused(respond: Callable[..., Any]) -> Iterable[bytes]:
    respond("503 Slow Down", [("Content-Type", "application/xml")])
    return [b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"]


def _reset(environ: dict[str, Any]) -> Iterable[bytes]:
    """Close the connection without an answer."""
    connection: socket.socket = environ["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError("as the fault wants it")


@contextmanager
def faulty_store(seed: int) -> Iterator[tuple[FaultyStore, dict[str, str]]]:
    """A running store and the variables of its clients."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it prints every request
    store = FaultyStore(seed)
    store.start()
    try:
        yield store, {**s3_environment(store.endpoint), "AWS_EC2_METADATA_DISABLED": "true"}
    finally:
        store.kill()


def new_bucket(store: FaultyStore) -> str:
    """The address of a new, empty bucket."""
    return s3_bucket(store.endpoint)
