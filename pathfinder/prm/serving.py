"""PathFinder-PRM behind HTTP: typed step scores, and the routes of vLLM's pooling server.

Requests of all clients share batches in fair order (``Batcher``). ``gate`` refuses requests unread. Answers do not
repeat the text of a request, except on the page and in ``/rerank``; ``unlike`` repeats words of it. ``docs/server.md``
describes the routes.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, Field

from ground.io import DataError
from pathfinder.core.layouts import split_steps, unless_blank
from pathfinder.core.steps import Known, Solution
from pathfinder.pages.formulas import Formulas
from pathfinder.pages.page import STYLE, escaped, template
from pathfinder.pages.picture import EXAMPLE_PROBLEM, EXAMPLE_STEPS, LEGEND, picture_of
from pathfinder.prm.batching import Batcher, FullError, tokens_of
from pathfinder.prm.gate import AGAIN, Bearer, Gate, Impatient, OwnHost
from pathfinder.prm.results import NO_STEP, ScoredSolution, UnscoredSolution, scored_solution, warning
from pathfinder.prm.vllm_routes import LIMITS, MOST_STEPS, InvalidError, SolutionIn, add_routes, refusal

MOST_CHARACTERS = 8192
"""The longest problem or step that is scored: a step is scored in one pass, during which others wait."""

LONG_TEXT = f"longer than {MOST_CHARACTERS} characters in its problem or in a step"

MOST_CONNECTIONS = 512
"""Below the usual limit of 1024 open files, so that the server can still answer."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_FIELDS = 2
"""Fields of the page's form. The page has no script."""


class ScoreRequest(BaseModel):
    """Solutions to score together."""

    solutions: Annotated[list[SolutionIn], Field(min_length=1, max_length=MOST_STEPS)]


class StepOut(BaseModel):
    """Probabilities that there is no error of each kind, and that the step is correct; higher is better."""

    math: float | None
    consistency: float | None
    reward: float | None
    soundness: Annotated[float | None, Field(description="The probability of no error")]
    quality: Annotated[float | None, Field(description="The probability of no error in a useful step")]
    optimality: Annotated[float | None, Field(description="Usefulness, for a step without a predicted error")]
    probabilities: Annotated[dict[str, float], Field(description="By label: the probability of no such error")]
    errors: Annotated[list[str], Field(description="Labels whose probability is below one half")]
    correct: bool


class ScoredOut(BaseModel):
    """The scores of a solution's steps."""

    scored: Literal[True]
    steps: list[StepOut]
    first_error: Annotated[int | None, Field(description="Index of the first incorrect step, from 0; null: none is")]
    unlike: Annotated[list[str], Field(description="Differences from all that a small model learnt from")]


class UnscoredOut(BaseModel):
    """A solution without scores, and the reason in words."""

    scored: Literal[False]
    reason: str


class ScoreResponse(BaseModel):
    """The scored solutions, in the order of the request."""

    model: str
    solutions: list[ScoredOut | UnscoredOut]


def make_app(
    batcher: Batcher,
    model: str,
    is_local: bool = True,
    names: Collection[str] = (),
    most_tokens: int = 1 << 16,
    deadline_s: float = 300.0,
    token: str = "",
    known: Known = Known(),  # noqa: B008
) -> FastAPI:
    """The application; ``model`` is the name that it reports.

    With ``is_local`` or ``names``, it answers only under the names of this machine and ``names``, and to no foreign
    page (``OwnHost``). A request has at most ``most_tokens`` tokens (``tokens_of``) and ``deadline_s`` seconds. Every
    client must send the ``token`` (``Bearer``). ``known`` describes the model's training texts.

    Its routes raise ``HTTPException`` for a full queue (429), for solutions that cannot be scored (400, 422), and for
    solutions that are not scored in time or before the server ends (503).
    """
    app = FastAPI(title="PathFinder-PRM", description=__doc__, docs_url="/docs", redoc_url=None)
    refused = Counter[str](dict.fromkeys(("too many waiting", "too long", "too late", "invalid", "failed"), 0))
    app.add_middleware(Gate, batcher=batcher, most_tokens=most_tokens, refused=refused)
    if token:
        app.add_middleware(Bearer, token=token)
    if is_local or names:
        app.add_middleware(OwnHost, names=names)

    async def scored(solutions: Sequence[SolutionIn]) -> list[ScoredSolution | UnscoredSolution]:
        given = [Solution(str(place), one.problem, unless_blank(one.steps)) for place, one in enumerate(solutions)]
        asked = [one for one in given if not _unfit(one)]
        tokens = sum(map(tokens_of, asked))
        if tokens > most_tokens:
            refused["too long"] += 1
            text = f"the request has about {tokens} tokens; send at most {most_tokens} in one request"
            raise HTTPException(422, text)
        try:
            futures = batcher.submit(asked)
        except FullError:
            refused["too many waiting"] += 1
            raise HTTPException(429, "too many solutions wait; try again", AGAIN) from None
        try:
            async with asyncio.timeout(deadline_s):
                scores = iter(await asyncio.gather(*map(asyncio.wrap_future, futures)))
        except TimeoutError:
            refused["too late"] += 1
            raise HTTPException(503, f"not scored within {deadline_s:g} s; send less, or try again", AGAIN) from None
        except asyncio.CancelledError:
            if not batcher.is_closed:
                raise  # the client has gone
            raise HTTPException(503, "the server ends; try again later", AGAIN) from None
        except DataError:
            refused["failed"] += 1
            raise HTTPException(422, "a solution cannot be scored; shorten it or leave it out") from None
        return [
            UnscoredSolution(one.problem, why)
            if (why := _unfit(one))
            else scored_solution(one, next(scores), known.unlike(one))
            for one in given
        ]

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> JSONResponse:
        refused["invalid"] += isinstance(error, InvalidError)
        return refusal(request.url.path, error.detail, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        refused["invalid"] += 1
        if not _is_json(request):
            # Accepting every type would serve foreign pages, because a browser lets them send text, but not JSON.
            return refusal(request.url.path, "send JSON with the header `Content-Type: application/json`", 415)
        found = [{"at": [str(part)[:50] for part in e["loc"]], "message": e["msg"]} for e in error.errors()[:5]]
        return refusal(request.url.path, found, 422)

    @app.post("/v1/score")
    async def score(request: ScoreRequest) -> ScoreResponse:
        """Score every step of every solution."""
        found = [one.row() for one in await scored(request.solutions)]
        return ScoreResponse.model_validate({"model": model, "solutions": found})

    add_routes(app, scored, model)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The one model, in the form of OpenAI's list."""
        return {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "pathfinder"}]}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Answer that the server works, with the number of waiting solutions."""
        return {"status": "ok", "model": model, "waiting": batcher.waiting}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        """Counts in Prometheus' text form."""
        lines = [
            *_metric("pathfinder_solutions_total", "counter", "Solutions scored", {"": batcher.scored}),
            *_metric("pathfinder_batches_total", "counter", "Forward batches", {"": batcher.batches}),
            *_metric("pathfinder_waiting", "gauge", "Solutions that wait", {"": batcher.waiting}),
            *_metric("pathfinder_tokens", "gauge", "Tokens that wait or are scored", {"": batcher.tokens}),
            *_metric("pathfinder_abandoned_total", "counter", "Solutions given up", {"": batcher.abandoned}),
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
        return page(model, known)

    @app.post("/", response_class=HTMLResponse, include_in_schema=False)
    async def scored_page(request: Request) -> HTMLResponse:
        problem, text = "", ""
        try:
            problem, text = read_form(await request.body())
            (found,) = await scored([SolutionIn(problem=problem, steps=split_steps(text, "blank"))])
        except ValueError:  # the form, or the limits of ``SolutionIn``
            refused["invalid"] += 1
            return page(model, known, problem, text, refusal=f"Not scored: {LIMITS}.", status=422)
        except HTTPException as error:
            return page(model, known, problem, text, refusal=f"Not scored: {error.detail}.", status=error.status_code)
        return page(model, known, problem, text, found)

    return app


def _unfit(one: Solution) -> str:
    """The reason why a solution is not scored; empty if it is."""
    if not one.steps:
        return NO_STEP
    return LONG_TEXT if max(map(len, (one.problem, *one.steps))) > MOST_CHARACTERS else ""


def read_form(body: bytes) -> tuple[str, str]:
    """Problem and steps from a browser's form; a missing field is empty.

    Raises ``ValueError`` if there are other fields.
    """
    found = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_FIELDS)
    problem, steps = (found.get(name, [""])[0].replace("\r\n", "\n").strip() for name in ("problem", "steps"))
    return problem, steps


def page(
    model: str,
    known: Known,
    problem: str = EXAMPLE_PROBLEM,
    steps: str = "\n\n".join(EXAMPLE_STEPS),
    scored: ScoredSolution | UnscoredSolution | None = None,
    refusal: str = "",
    status: int = 200,
) -> HTMLResponse:
    """The page with the model's known words and the filled form; ``refusal`` says why there are no scores."""
    found = picture_of(scored.problem, scored.steps) if scored and scored.scored else None
    given = {"model": model, "known": str(known), "problem": problem, "steps": steps, "style": STYLE, "legend": LEGEND}
    said = verdict(scored) if scored else refusal
    content = template("try.html").render(given, scored=found, status=said, formulas=Formulas(escaped))
    return HTMLResponse(content, status, {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"})


def verdict(scored: ScoredSolution | UnscoredSolution) -> str:
    """The result in words: the first error, the steps without an error that do not help, and a warning."""
    if not scored.scored:
        return f"Not scored: the solution is {scored.reason}."
    if scored.unlike:
        return f"{_flagged(scored)} {warning(scored.unlike)}"
    return _flagged(scored)


def _flagged(scored: ScoredSolution) -> str:
    if scored.first_error is None:
        return "No step is flagged."
    wrong = [place for place, step in enumerate(scored.steps, start=1) if step.has_error]
    idle = [str(place) for place, step in enumerate(scored.steps, start=1) if not step.has_error and not step.correct]
    said = f"The first incorrect step is step {wrong[0]}." if wrong else "No step has an error."
    return f"{said} Without an error, but not useful: step {', '.join(idle)}." if idle else said


def http_server(app: FastAPI, batcher: Batcher, log_level: str = "warning") -> uvicorn.Server:
    """Serves ``app`` to at most ``MOST_CONNECTIONS`` clients; any more get 503. It closes slow connections.

    When it is told to end, it closes ``batcher``, so that nobody waits for solutions that are not scored yet.
    """

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            batcher.close()
            await super().shutdown(sockets)

    limits: dict[str, Any] = {"limit_concurrency": MOST_CONNECTIONS, "lifespan": "off"}
    return Server(uvicorn.Config(app, http=Impatient, ws="none", log_level=log_level, **limits))


@contextmanager
def listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens on ``host``, and its address as a URL; raises ``DataError`` if the port is not free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family)
    except OSError as error:
        raise DataError(f"{host}:{port}: {error.strerror or error}; give another --host or --port") from error
    with made:
        # asyncio does this only for sockets that name their protocol. Otherwise, an answer's body, which follows its
        # headers in a separate packet, waits 40 ms for the client's delayed acknowledgement.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = f"[{host}]" if ":" in host else host
        yield made, f"http://{name}:{made.getsockname()[1]}/"


def _is_json(request: Request) -> bool:
    """Return whether the header says that the body is JSON; FastAPI parses only such bodies."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return re.fullmatch(r"application/([^/]+\+)?json", kind) is not None


def _metric(name: str, kind: str, text: str, values: dict[str, int]) -> list[str]:
    lines = [f"{name}{label} {value}" for label, value in values.items()]
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines]
