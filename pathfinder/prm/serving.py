"""PathFinder-PRM behind HTTP: typed step scores, and the pooling form in which clients of other PRMs ask vLLM.

Requests of all clients share batches (``Batcher``). A full queue answers 429, a body over the limit 413. No answer
holds the text of a request, except the page, which shows it again. ``docs/server.md`` describes the routes.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, Field, StringConstraints
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pathfinder.core.io import DataError
from pathfinder.core.steps import Solution
from pathfinder.prm import form
from pathfinder.prm.batching import Batcher, FullError
from pathfinder.prm.hosts import OwnHost
from pathfinder.prm.results import ScoredSolution, scored_solution, split_steps

MOST_STEPS = 1024
SEPARATOR = "<extra_0>"
"""Ends each step in requests that were written for Qwen2.5-Math-PRM."""

Text = Annotated[str, StringConstraints(min_length=1)]


class SolutionIn(BaseModel):
    """A problem and the steps of one solution."""

    problem: str
    steps: Annotated[list[Text], Field(min_length=1, max_length=MOST_STEPS)]


class ScoreRequest(BaseModel):
    """Solutions to score together."""

    solutions: Annotated[list[SolutionIn], Field(min_length=1, max_length=MOST_STEPS)]


class StepOut(BaseModel):
    """Probabilities that there is no error of each kind, and that the step is correct; higher is better."""

    math: float | None = None
    consistency: float | None = None
    reward: float | None
    labels: dict[str, float]
    correct: bool


class SolutionOut(BaseModel):
    """The scores of a solution's steps; none if it is longer than the model's context."""

    steps: list[StepOut]
    first_error: Annotated[int | None, Field(description="Index of the first incorrect step, from 0")]
    too_long: bool


class ScoreResponse(BaseModel):
    """The scored solutions, in the order of the request."""

    model: str
    solutions: list[SolutionOut]


class Turn(BaseModel):
    """One turn of a chat."""

    role: str
    content: str


class PoolingRequest(BaseModel):
    """A chat whose last turn is a solution, as clients send it to vLLM's ``/pooling``."""

    messages: Annotated[list[Turn], Field(min_length=2, max_length=8)]
    model: str = ""


def make_app(
    batcher: Batcher, model: str, most_bytes: int = 1 << 20, is_local: bool = True, names: Collection[str] = ()
) -> FastAPI:
    """The application; ``model`` is the name that it reports, ``most_bytes`` the largest body in bytes.

    With ``is_local`` or ``names`` it answers only under the names of this machine and ``names``, and to no page of
    another origin (``OwnHost``).

    Its routes raise ``HTTPException`` for a full queue (429) and for solutions that cannot be scored (400, 422).
    """
    app = FastAPI(title="PathFinder-PRM", description=__doc__, docs_url="/docs", redoc_url=None)
    app.add_middleware(BodyLimit, most_bytes=most_bytes)
    if is_local or names:
        app.add_middleware(OwnHost, names=names)
    refused = dict.fromkeys(("too many waiting", "invalid", "failed"), 0)

    async def scored(solutions: Sequence[SolutionIn]) -> list[ScoredSolution]:
        given = [Solution(str(place), one.problem, tuple(one.steps)) for place, one in enumerate(solutions)]
        try:
            futures = batcher.submit(given)
        except FullError:
            refused["too many waiting"] += 1
            raise HTTPException(429, "too many solutions wait; try again", {"Retry-After": "1"}) from None
        try:
            scores = await asyncio.gather(*map(asyncio.wrap_future, futures))
        except DataError:
            refused["failed"] += 1
            raise HTTPException(422, "a solution cannot be scored; shorten it or leave it out") from None
        return [scored_solution(*pair) for pair in zip(given, scores, strict=True)]

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        refused["invalid"] += 1
        if not _is_json(request):
            # Reading any type would serve pages of other sites: a browser lets them send text, but not JSON.
            return JSONResponse({"detail": "send JSON with the header `Content-Type: application/json`"}, 415)
        found = [{"at": [str(part)[:50] for part in e["loc"]], "message": e["msg"]} for e in error.errors()[:5]]
        return JSONResponse({"detail": found}, 422)

    @app.post("/v1/score")
    async def score(request: ScoreRequest) -> ScoreResponse:
        """Score every step of every solution."""
        return ScoreResponse(model=model, solutions=[_out(found) for found in await scored(request.solutions)])

    @app.post("/pooling")
    async def pooling(request: PoolingRequest) -> dict[str, Any]:
        """Per step [1 - reward, reward]. Steps end with ``<extra_0>`` or are separated by blank lines."""
        text = request.messages[-1].content
        ended = [step for part in text.split(SEPARATOR) if (step := part.strip())]
        steps = ended if SEPARATOR in text else split_steps(text)
        problem = next((turn.content for turn in request.messages if turn.role == "user"), "")
        if not steps:
            raise HTTPException(422, "the last message has no step")
        (found,) = await scored([SolutionIn(problem=problem, steps=steps)])
        if found.too_long:
            raise HTTPException(400, "the solution is longer than the model's context")
        rows = [[1 - reward, reward] for reward in found.rewards]
        return {"object": "list", "model": model, "data": [{"index": 0, "object": "pooling", "data": rows}]}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The one model, in the form of OpenAI's list."""
        return {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "pathfinder"}]}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the server works, and how many solutions wait."""
        return {"status": "ok", "model": model, "waiting": batcher.waiting}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        """Counts in Prometheus' text form."""
        lines = [
            *_metric("pathfinder_solutions_total", "counter", "Solutions scored", {"": batcher.scored}),
            *_metric("pathfinder_batches_total", "counter", "Forward batches", {"": batcher.batches}),
            *_metric("pathfinder_waiting", "gauge", "Solutions that wait", {"": batcher.waiting}),
            *_metric(
                "pathfinder_refused_total",
                "counter",
                "Requests refused",
                {f'{{reason="{reason}"}}': count for reason, count in refused.items()},
            ),
        ]
        return "\n".join(lines) + "\n"

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)  # browsers ask for it and log a 404 as an error

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def empty_page() -> HTMLResponse:
        return form.page(model)

    @app.post("/", response_class=HTMLResponse, include_in_schema=False)
    async def scored_page(request: Request) -> HTMLResponse:
        problem, text = "", ""
        try:
            problem, text = form.read_form(await request.body())
            (found,) = await scored([SolutionIn(problem=problem, steps=split_steps(text))])
        except ValueError:  # the form, or the limits of ``SolutionIn``
            refused["invalid"] += 1
            refusal = f"Not scored: give a problem and 1 to {MOST_STEPS} steps."
            return form.page(model, problem, text, refusal=refusal, status=422)
        except HTTPException as error:
            return form.page(model, problem, text, refusal=f"Not scored: {error.detail}.", status=error.status_code)
        return form.page(model, problem, text, found)

    return app


@contextmanager
def listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens on ``host``, and its address as a URL; raises ``DataError`` if the port is not free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family)
    except OSError as error:
        raise DataError(f"{host}:{port}: {error.strerror or error}; give another --host or --port") from error
    with made:
        # asyncio does this only for sockets that name their protocol. Without it an answer's body, which follows its
        # headers in a packet of its own, waits 40 ms for the client's delayed acknowledgement.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = f"[{host}]" if ":" in host else host
        yield made, f"http://{name}:{made.getsockname()[1]}/"


class BodyLimit:
    """Answers 413 to a request whose body is longer than ``most_bytes``, and 400 to one with two lengths.

    A proxy that reads the other length would take the end of a body for the next request, or the other way round.
    """

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app, self._most_bytes = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the whole body before the application sees the request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            refusal = JSONResponse({"detail": "the body has two lengths"}, 400, {"Connection": "close"})
            await refusal(scope, receive, send)
            return
        body = bytearray()
        message: Message = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > self._most_bytes:
                refusal = JSONResponse({"detail": f"the body is longer than {self._most_bytes} bytes"}, 413)
                await refusal(scope, receive, send)
                return
        whole = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)


def _is_json(request: Request) -> bool:
    """Whether the header says that the body is JSON; FastAPI does not parse the body of any other request."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return re.fullmatch(r"application/([^/]+\+)?json", kind) is not None


def _out(found: ScoredSolution) -> SolutionOut:
    steps = [
        StepOut(
            math=step.math,
            consistency=step.consistency,
            reward=step.reward,
            labels=dict(step.labels),
            correct=step.correct,
        )
        for step in found.steps
    ]
    return SolutionOut(steps=steps, first_error=found.first_error, too_long=found.too_long)


def _metric(name: str, kind: str, text: str, values: dict[str, int]) -> list[str]:
    lines = [f"{name}{label} {value}" for label, value in values.items()]
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines]
