"""The checks before the server reads a request: host, origin, token, length, room in the queue, and time.

``Impatient`` closes connections on which nothing useful arrives. ``Gate`` ends the work for a client that has left.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pathfinder.prm.batching import BYTES_PER_TOKEN, Batcher, FullError

AGAIN = {"Retry-After": "1"}
_CLOSE = {"Connection": "close"}


class OwnHost:
    """Answers 403 to a request under a foreign name of the server, or from a page of a different host or port.

    ``names`` are further names of the server, such as the name of a proxy. Under a foreign name that resolves to this
    machine, a page could read the answers; a page of a different host could keep the server busy. Programs send no
    origin and are served.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app, self._names = app, {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if it names this server and comes from this origin or none."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, origin = headers.get("host", ""), headers.get("origin")
            is_foreign = origin is not None and origin.partition("://")[2] != host  # a proxy may serve https
            name = _name(host)
            if is_foreign or not (name in self._names or is_own(name)):
                refusal = JSONResponse({"detail": "this server answers only to its own name and pages"}, 403)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Bearer:
    """Answers 401 to a request without ``Authorization: Bearer TOKEN``; anyone may request ``/health``."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.strip().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if it has the token."""
        if scope["type"] == "http" and scope["path"] != "/health":
            scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip(" \t").encode("latin-1"), self._token):
                refusal = JSONResponse({"detail": "send the server's token: `Authorization: Bearer TOKEN`"}, 401)
                refusal.headers["WWW-Authenticate"] = "Bearer"
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Gate:
    """Reads bodies of at most ``most_tokens`` tokens, and cancels the work for a client that has left.

    It answers 413 to a longer body, 429 if the queue has no room for it, and 400 to a body with two lengths. A proxy
    that reads the second length could take the end of a body for the next request, or vice versa. The length of a body
    is a sufficient estimate of its tokens, so these checks neither wait for the body nor parse it.
    """

    def __init__(self, app: ASGIApp, batcher: Batcher, most_tokens: int, refused: Counter[str]) -> None:
        self._app, self._batcher, self._most_tokens, self._refused = app, batcher, most_tokens, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the whole body before the application sees the request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(int(headers.get("content-length", 0)))
        if {"content-length", "transfer-encoding"} <= {*headers}:
            refusal = JSONResponse({"detail": "the body has two lengths"}, 400, _CLOSE)
        body = bytearray()
        message: Message = {"more_body": True}
        while refusal is None and message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            refusal = self._refusal(len(body))
        if refusal is None:
            await self._answer(bytes(body), scope, receive, send)
        else:
            await refusal(scope, receive, send)

    def _refusal(self, size: int) -> JSONResponse | None:
        tokens = size // BYTES_PER_TOKEN
        if tokens > self._most_tokens:
            self._refused["too long"] += 1
            text = f"the body is longer than {BYTES_PER_TOKEN * self._most_tokens} bytes; send several requests"
            return JSONResponse({"detail": text}, 413, _CLOSE)
        try:
            self._batcher.refuse(tokens)
        except FullError:
            self._refused["too many waiting"] += 1
            return JSONResponse({"detail": "too many solutions wait; try again"}, 429, AGAIN | _CLOSE)
        return None

    async def _answer(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def leave() -> Message:
            return await receive()

        async def replay() -> Message:
            return whole.pop() if whole else await asyncio.shield(gone)

        async def work() -> None:
            await self._app(scope, replay, send)

        gone, answer = asyncio.create_task(leave()), asyncio.create_task(work())
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            answer.cancel()  # this also cancels its waiting solutions; a complete answer is not affected
        with suppress(asyncio.CancelledError):
            await answer


class Impatient(H11Protocol):
    """Closes a connection if a request takes longer than ``patience`` seconds to arrive, or its answer to be read."""

    patience = 10.0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._set_clock()

    def data_received(self, data: bytes) -> None:
        """Stop the clock when the last byte of a request has arrived."""
        super().data_received(data)
        self._set_clock()

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to read this answer."""
        self._stop()
        super().on_response_complete()
        self._set_clock()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._set_clock()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._set_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        super().connection_lost(exc)
        self._stop()

    def _set_clock(self) -> None:
        """Stop the clock while the server works on an answer; otherwise let it run."""
        asked = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        if asked and not self.flow.write_paused:
            self._stop()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(self.patience, self.transport.abort)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_own(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
