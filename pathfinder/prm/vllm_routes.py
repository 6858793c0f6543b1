"""The routes of vLLM's pooling server: step rewards under ``/classify``, ``/pooling``, ``/rerank`` and ``/score``.

Fields, usage and errors have the names of vLLM 0.32 (``entrypoints/pooling/{classify,pooling,scoring}/protocol.py``).
A setting that would change the numbers, such as a truncation, is refused. Other settings are ignored, as vLLM ignores
unknown fields. Tokens are the server's estimate (``tokens_of``). ``docs/server.md`` says what the numbers mean.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, AliasChoices, BaseModel, Field, ValidationError

from pathfinder.core.layouts import split_steps, text_of
from pathfinder.core.steps import Solution
from pathfinder.models.tokens import neutralise
from pathfinder.prm.batching import tokens_of
from pathfinder.prm.results import ScoredSolution, UnscoredSolution

MOST_STEPS = 1024
LIMITS = f"give a problem and at most {MOST_STEPS} steps"
SEPARATOR = "<extra_0>"
"""Ends each step in requests that were written for Qwen2.5-Math-PRM."""
RERANK = ("/rerank", "/v1/rerank", "/v2/rerank")
PATHS = ("/classify", "/pooling", "/score", *RERANK)


Text = Annotated[str, AfterValidator(partial(neutralise, specials=()))]
"""A text that an answer can repeat: lone surrogates become U+FFFD, as in the prompt."""


class InvalidError(HTTPException):
    """A request whose solutions cannot be scored."""


class SolutionIn(BaseModel):
    """A problem and the steps of one solution."""

    problem: Text
    steps: Annotated[list[Text], Field(max_length=MOST_STEPS)]


Score = Callable[[Sequence[SolutionIn]], Awaitable[Sequence[ScoredSolution | UnscoredSolution]]]


class _Settings(BaseModel):
    use_activation: Literal[True] | None = None
    truncate_prompt_tokens: Literal[-1] | None = None
    """-1, which vLLM's own clients send, is the model's context; a solution that is longer is refused all the same."""
    encoding_format: Literal["float"] = "float"


class Turn(BaseModel):
    """One turn of a chat; its content is a text, or a list of parts with texts."""

    role: str
    content: Any


class PoolingRequest(_Settings):
    """Texts, or one chat. A text has blank lines between the problem and the steps.

    The last turn of a chat is a solution to the last user turn before it; without such a turn, it is a text.
    """

    input: str | Annotated[list[str], Field(min_length=1, max_length=MOST_STEPS)] | None = None
    messages: Annotated[list[Turn] | None, Field(min_length=1, max_length=8)] = None
    task: Literal["token_classify", "classify"] | None = None

    def solutions(self) -> list[SolutionIn]:
        """The solutions of the request; raises ``InvalidError`` for one with too many steps."""
        if (self.input is None) == (self.messages is None):
            raise InvalidError(422, "give either input or messages")
        asked = [turn for turn in (self.messages or [])[:-1] if turn.role == "user"]
        if self.messages and asked:
            return [_solution(_text(asked[-1]), _text(self.messages[-1]))]
        texts = _text(self.messages[-1]) if self.messages else self.input or ""
        given = [texts] if isinstance(texts, str) else texts
        parts = [split_steps(text, "blank") or [""] for text in given]
        return [_solution(problem, "\n\n".join(rest)) for problem, *rest in parts]


class RerankRequest(_Settings):
    """A problem and solutions to sort by their reward; ``top_n`` 0 returns all."""

    query: str
    documents: Annotated[list[Text], Field(min_length=1, max_length=MOST_STEPS)]
    top_n: int = 0


Texts = str | Annotated[list[str], Field(min_length=1, max_length=MOST_STEPS)]


class PairsRequest(_Settings):
    """As many problems as solutions, or one problem for all solutions."""

    problems: Annotated[Texts, Field(validation_alias=AliasChoices("text_1", "queries", "data_1"))]
    answers: Annotated[Texts, Field(validation_alias=AliasChoices("text_2", "documents", "data_2"))]

    def solutions(self) -> list[SolutionIn]:
        """The solutions of the request; raises ``InvalidError`` for unequal numbers, and for too many steps."""
        problems, answers = ([one] if isinstance(one, str) else one for one in (self.problems, self.answers))
        if len(problems) not in (1, len(answers)):
            raise InvalidError(422, f"{len(problems)} problems for {len(answers)} solutions; give one, or as many")
        return list(map(_solution, problems * (len(answers) // len(problems)), answers))


def add_routes(app: FastAPI, score: Score, model: str) -> None:
    """Add the routes to ``app``; ``score`` scores the solutions of a request, and raises ``HTTPException``.

    If a solution cannot be scored, the whole request gets 400, as with vLLM.
    """

    async def rewards_of(solutions: Sequence[SolutionIn]) -> list[list[float]]:
        rewards = []
        for place, found in enumerate(await score(solutions)):
            if not found.scored:
                raise InvalidError(400, f"solution {place} is {found.reason}")
            rewards.append(found.rewards)
        return rewards

    def answer(kind: str, solutions: Sequence[SolutionIn], rows: Sequence[Any] = (), **rest: Any) -> dict[str, Any]:
        count = sum(tokens_of(Solution("", one.problem, tuple(one.steps))) for one in solutions)
        usage: dict[str, Any] = {"prompt_tokens": count, "total_tokens": count}
        if rows:
            usage |= {"completion_tokens": 0, "prompt_tokens_details": None}
            data = [{"index": place, **row} for place, row in enumerate(rows)]
            rest = {"object": "list", "created": int(time.time()), "data": data}
        return {"id": f"{kind}-{uuid.uuid4().hex}", "model": model, "usage": usage, **rest}

    @app.post("/pooling")
    async def pooling(request: PoolingRequest) -> dict[str, Any]:
        """For each step [1 - reward, reward]; with the task "classify", for each solution by its smallest reward."""
        given = request.solutions()
        rows = [[[1 - reward, reward] for reward in rewards] for rewards in await rewards_of(given)]
        whole = request.task == "classify"
        return answer("pooling", given, [{"object": "pooling", "data": max(row) if whole else row} for row in rows])

    @app.post("/classify")
    async def classify(request: PoolingRequest) -> dict[str, Any]:
        """For each solution, the probabilities "incorrect" and "correct" by its smallest reward."""
        given, labels = request.solutions(), ("incorrect", "correct")
        found = map(min, await rewards_of(given))
        rows = [{"label": labels[low > 0.5], "probs": [1 - low, low], "num_classes": 2} for low in found]
        return answer("classify", given, rows)

    @app.post("/score")
    async def score_pairs(request: PairsRequest) -> dict[str, Any]:
        """The smallest reward of each solution."""
        given = request.solutions()
        return answer("score", given, [{"object": "score", "score": min(one)} for one in await rewards_of(given)])

    async def rerank(request: RerankRequest) -> dict[str, Any]:
        """The solutions of a problem by their smallest reward, the highest first."""
        given = [_solution(request.query, document) for document in request.documents]
        scores = sorted(enumerate(map(min, await rewards_of(given))), key=lambda pair: -pair[1])
        found = [
            {"index": at, "document": {"text": request.documents[at], "multi_modal": None}, "relevance_score": score}
            for at, score in scores[: request.top_n if request.top_n > 0 else None]
        ]
        return answer("score", given, results=found)

    for path in RERANK:
        app.post(path)(rerank)


def refusal(path: str, detail: Any, status: int, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error in vLLM's form (``error``), with 400 for 422; ``detail`` is a text, or places (``at``) with messages."""
    if path not in PATHS:
        return JSONResponse({"detail": detail}, status, headers)
    code = HTTPStatus(400 if status == 422 else status)
    kind = "BadRequestError" if code == 400 else code.phrase
    parts = [detail] if isinstance(detail, str) else [f"{'.'.join(one['at'])}: {one['message']}" for one in detail]
    error = {"message": "; ".join(parts), "type": kind, "param": None, "code": code}
    return JSONResponse({"error": error}, code, headers)


def _text(turn: Turn) -> str:
    try:
        return text_of(turn.content)
    except ValueError:
        raise InvalidError(422, "a turn has a part that is no text; send texts only") from None


def _solution(problem: str, text: str) -> SolutionIn:
    ended = [step for part in text.split(SEPARATOR) if (step := part.strip())]
    try:
        return SolutionIn(problem=problem, steps=ended if SEPARATOR in text else split_steps(text, "blank"))
    except ValidationError:
        raise InvalidError(422, LIMITS) from None
