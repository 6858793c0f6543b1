"""The routes of vLLM's pooling server: a PRM's step rewards under ``/classify``, ``/pooling`` and ``/rerank``.

Fields, usage and errors have the names of vLLM 0.32 (``entrypoints/pooling/{classify,pooling,scoring}/protocol.py``).
A setting that would change the numbers, such as a truncation, is refused. Others are ignored, as vLLM ignores unknown
fields. Tokens are the server's estimate (``tokens_of``). ``docs/server.md`` says what the numbers mean.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal, Self

from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError, model_validator

from pathfinder.core.layouts import split_steps, text_of
from pathfinder.core.steps import Solution
from pathfinder.prm.batching import tokens_of
from pathfinder.prm.bodies import LIMITS, MOST_STEPS, SolutionIn
from pathfinder.prm.results import ScoredSolution, UnscoredSolution

SEPARATOR = "<extra_0>"
"""Ends each step in requests that were written for Qwen2.5-Math-PRM."""
RERANK = ("/rerank", "/v1/rerank", "/v2/rerank")
PATHS = ("/classify", "/pooling", *RERANK)

Score = Callable[[Sequence[SolutionIn]], Awaitable[Sequence[ScoredSolution | UnscoredSolution]]]
Content = str | list[dict[str, Any]]
"""A text, or the parts of a turn, which have to be texts."""


class _Settings(BaseModel):
    model: str | None = None
    use_activation: Literal[True] | None = None
    truncate_prompt_tokens: None = None
    encoding_format: Literal["float"] = "float"


class Turn(BaseModel):
    """One turn of a chat."""

    role: str
    content: Content


class PoolingRequest(_Settings):
    """Texts, or one chat whose last turn is a solution. A text has blank lines between the problem and the steps."""

    input: str | Annotated[list[str], Field(min_length=1, max_length=MOST_STEPS)] | None = None
    messages: Annotated[list[Turn] | None, Field(min_length=1, max_length=8)] = None
    task: Literal["token_classify", "classify"] | None = None

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.input is None) == (self.messages is None):
            raise ValueError("give either input or messages")
        return self

    def solutions(self) -> list[SolutionIn]:
        """The solutions of the request; raises ``HTTPException`` for one without steps."""
        if self.messages is None or len(self.messages) == 1:
            texts = _text(self.messages[0].content) if self.messages else self.input or ""
            return [_of_text(text) for text in ([texts] if isinstance(texts, str) else texts)]
        problem = next((_text(turn.content) for turn in self.messages if turn.role == "user"), "")
        return [_solution(problem, _text(self.messages[-1].content))]


class RerankRequest(_Settings):
    """A problem and solutions to sort by their reward; ``top_n`` 0 returns all."""

    query: str
    documents: Annotated[list[str], Field(min_length=1, max_length=MOST_STEPS)]
    top_n: int = 0


def add_routes(app: FastAPI, score: Score, model: str) -> None:
    """Add the routes to ``app``; ``score`` scores the solutions of a request, and raises ``HTTPException``.

    A solution that cannot be scored refuses the whole request with 400, as vLLM does.
    """

    async def rewards_of(solutions: Sequence[SolutionIn]) -> list[list[float]]:
        rewards = []
        for place, found in enumerate(await score(solutions)):
            if not found.scored:
                raise HTTPException(400, f"solution {place} is {found.reason}")
            rewards.append(found.rewards)
        return rewards

    def answer(kind: str, solutions: Sequence[SolutionIn], **rest: Any) -> dict[str, Any]:
        count = sum(tokens_of(Solution("", one.problem, tuple(one.steps))) for one in solutions)
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"id": f"{kind}-{uuid.uuid4().hex}", "model": model, "usage": usage, **rest}

    def listed(kind: str, solutions: Sequence[SolutionIn], data: Sequence[dict[str, Any]]) -> dict[str, Any]:
        rows = [{"index": place, **row} for place, row in enumerate(data)]
        found = answer(kind, solutions, object="list", created=int(time.time()), data=rows)
        found["usage"] |= {"completion_tokens": 0, "prompt_tokens_details": None}
        return found

    @app.post("/pooling")
    async def pooling(request: PoolingRequest) -> dict[str, Any]:
        """Per step [1 - reward, reward]; with the task "classify", per solution by its smallest reward."""
        given = request.solutions()
        data = [
            _both(min(rewards)) if request.task == "classify" else [_both(reward) for reward in rewards]
            for rewards in await rewards_of(given)
        ]
        return listed("pooling", given, [{"object": "pooling", "data": one} for one in data])

    @app.post("/classify")
    async def classify(request: PoolingRequest) -> dict[str, Any]:
        """Per solution the probabilities "incorrect" and "correct" by its smallest reward."""
        given = request.solutions()
        found = [_both(min(rewards)) for rewards in await rewards_of(given)]
        labels = ["correct" if right > wrong else "incorrect" for wrong, right in found]
        data = [{"label": label, "probs": both, "num_classes": 2} for label, both in zip(labels, found, strict=True)]
        return listed("classify", given, data)

    async def rerank(request: RerankRequest) -> dict[str, Any]:
        """The solutions of a problem by their smallest reward, the highest first."""
        given = [_solution(request.query, document) for document in request.documents]
        scores = [min(rewards) for rewards in await rewards_of(given)]
        found = [
            {"index": at, "document": {"text": request.documents[at], "multi_modal": None}, "relevance_score": score}
            for at, score in sorted(enumerate(scores), key=lambda pair: -pair[1])
        ]
        return answer("score", given, results=found[: request.top_n if request.top_n > 0 else None])

    for path in RERANK:
        app.post(path)(rerank)


def refusal(path: str, detail: Any, status: int, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error: ``detail`` or, under the routes of this module, vLLM's ``error``, with 400 in the place of 422.

    ``detail`` is a text, or a list of places (``at``) and messages.
    """
    if path not in PATHS:
        return JSONResponse({"detail": detail}, status, headers)
    code = HTTPStatus(400 if status == 422 else status)
    kind = "BadRequestError" if code == 400 else code.phrase
    parts = [detail] if isinstance(detail, str) else [f"{'.'.join(one['at'])}: {one['message']}" for one in detail]
    error = {"message": "; ".join(parts), "type": kind, "param": None, "code": code}
    return JSONResponse({"error": error}, code, headers)


def _both(reward: float) -> list[float]:
    return [1 - reward, reward]


def _text(content: Content) -> str:
    try:
        return text_of(content)
    except ValueError:
        raise HTTPException(422, "a turn has a part that is no text; send texts only") from None


def _of_text(text: str) -> SolutionIn:
    problem, _, rest = text.replace("\r\n", "\n").strip().partition("\n\n")
    return _solution(problem, rest)


def _solution(problem: str, text: str) -> SolutionIn:
    ended = [step for part in text.split(SEPARATOR) if (step := part.strip())]
    try:
        return SolutionIn(problem=problem, steps=ended if SEPARATOR in text else split_steps(text, "blank"))
    except ValidationError:
        raise HTTPException(422, LIMITS) from None
