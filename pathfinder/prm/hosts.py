"""Refuses what a web page of someone else sends to a server of this machine through the user's browser."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_OWN = ("127.0.0.1", "localhost", "::1")


class OwnHost:
    """Answers 403 to a request under another name of the server, or from a page of another origin.

    A foreign name that resolves to this machine lets a page read the answers; a page of another origin could keep the
    server busy. Programs send no origin and are served.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if it names this machine and comes from no other origin."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, origin = headers.get("host", ""), headers.get("origin")
            if _name(host) not in _OWN or (origin is not None and origin != f"http://{host}"):
                refusal = JSONResponse({"detail": "this server answers only to its own name and pages"}, 403)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def is_own(host: str) -> bool:
    """Whether a server that listens on ``host`` can be reached from this machine only."""
    return host in _OWN
