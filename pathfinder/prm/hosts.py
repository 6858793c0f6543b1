"""Refuses what a web page of someone else sends to a server of this machine through the user's browser."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class OwnHost:
    """Answers 403 to a request under another name of the server, or from a page of another host or port.

    ``names`` are further names of the server, such as that of a proxy. A foreign name that resolves to this machine
    lets a page read the answers; a page of another host could keep the server busy. Programs send no origin and are
    served.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app, self._names = app, {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if it names this server and comes from no other origin."""
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


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_own(host: str) -> bool:
    """Whether a server that listens on ``host`` can be reached from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
