"""The one client of OpenAI-compatible servers (vLLM, llama.cpp, hosted ones): many calls at once, each to its end.

Transient failures (429, 5xx, time-outs, resets, cut or unreadable bodies) are asked again with jitter and a cap; a
prompt that the server finds too long or refuses is an outcome; a wrong address, key or model stops the work. The key
comes from ``OPENAI_API_KEY``, and any value does for a local server.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import openai

from stages.core.io import DataError, TransientError

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0
_GIVEN_UP_IN_A_ROW = 8  # calls that used up their retries with no success between: the server is down

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One call: ``key`` names it and seeds it; ``prompt`` is a user turn (chat) or raw text (complete)."""

    key: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """How a completion is drawn and where it ends."""

    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...] = ()
    include_stop: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server wrote; ``tokens`` counts the completion's."""

    text: str
    tokens: int
    finish: Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no text."""

    outcome: Literal["too_long", "refused", "engine_error"]
    message: str


Sink = Callable[[str, "Reply | Failure"], None]


@dataclass(slots=True)
class ServerClient:
    """``concurrency`` calls at a time, ``timeout_s`` each, up to ``retries`` more tries after a transient failure."""

    base_url: str
    concurrency: int
    timeout_s: float
    retries: int
    model: str = ""
    _given_up: int = field(default=0, init=False)

    def served_model(self, wanted: str | None = None) -> str:
        """The model that the server offers: ``wanted`` where given, else its only one; ``DataError`` otherwise."""

        async def ask() -> list[str]:
            async with self._open() as client:
                return [model.id async for model in await self._patiently(client.models.list)]

        offered = asyncio.run(ask())
        if wanted is None and len(offered) == 1:
            return offered[0]
        if wanted is None or wanted not in offered:
            raise DataError(
                f"{self.base_url}: serves {sorted(offered)}, expected {wanted or 'exactly one model'}; "
                "start the server with that model (vLLM: --served-model-name)"
            )
        return wanted

    def chat(self, requests: Iterable[Request], sampled: Sampled, sink: Sink) -> None:
        """One user turn each; ``sink`` gets every result as it comes, in no fixed order.

        Raises ``TransientError`` when the server is down, ``DataError`` for a wrong address, key or model.
        """

        async def call(client: openai.AsyncOpenAI, request: Request) -> Reply | Failure:
            answer = await client.chat.completions.create(
                messages=[{"role": "user", "content": request.prompt}], **self._settings(request, sampled)
            )
            choice = answer.choices[0]
            if choice.finish_reason == "content_filter" or choice.message.refusal:
                return Failure("refused", choice.message.refusal or "content filter")
            thought = getattr(choice.message, "reasoning_content", None)
            text = (f"<think>{thought}</think>" if thought else "") + (choice.message.content or "")
            return _reply(text, answer.usage, choice.finish_reason)

        self._run(requests, call, sink)

    def complete(self, requests: Iterable[Request], sampled: Sampled, sink: Sink) -> None:
        """Raw text each, continued; otherwise as ``chat``."""

        async def call(client: openai.AsyncOpenAI, request: Request) -> Reply | Failure:
            answer = await client.completions.create(prompt=request.prompt, **self._settings(request, sampled))
            return _reply(answer.choices[0].text, answer.usage, answer.choices[0].finish_reason)

        self._run(requests, call, sink)

    def _settings(self, request: Request, sampled: Sampled) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "model": self.model,
            "temperature": sampled.temperature,
            "top_p": sampled.top_p,
            "max_tokens": sampled.max_tokens,
            "seed": int(hashlib.sha256(request.key.encode()).hexdigest()[:7], 16),
        }
        if sampled.stop:
            settings["stop"] = list(sampled.stop)
        if sampled.include_stop:
            settings["extra_body"] = {"include_stop_str_in_output": True}  # vLLM's name
        return settings

    def _open(self) -> openai.AsyncOpenAI:
        key = os.environ.get("OPENAI_API_KEY") or "none"
        return openai.AsyncOpenAI(base_url=self.base_url, api_key=key, timeout=self.timeout_s, max_retries=0)

    def _run(
        self,
        requests: Iterable[Request],
        call: Callable[[openai.AsyncOpenAI, Request], Awaitable[Reply | Failure]],
        sink: Sink,
    ) -> None:
        waiting = iter(requests)

        async def work(client: openai.AsyncOpenAI) -> None:
            for request in waiting:
                sink(request.key, await self._outcome(client, call, request))

        async def work_all() -> None:
            async with self._open() as client, asyncio.TaskGroup() as group:
                for _ in range(self.concurrency):
                    group.create_task(work(client))

        try:
            asyncio.run(work_all())
        except* (DataError, TransientError) as failures:
            raise _first(failures) from None

    async def _outcome(
        self,
        client: openai.AsyncOpenAI,
        call: Callable[[openai.AsyncOpenAI, Request], Awaitable[Reply | Failure]],
        request: Request,
    ) -> Reply | Failure:
        try:
            result = await self._patiently(lambda: call(client, request))
        except openai.BadRequestError as error:
            said = error.message.lower()
            too_long = "context length" in said or "maximum context" in said or "too long" in said
            return Failure("too_long" if too_long or error.code == "context_length_exceeded" else "refused", said)
        except TransientError as error:
            self._given_up += 1
            if self._given_up >= _GIVEN_UP_IN_A_ROW:
                raise
            return Failure("engine_error", str(error))
        self._given_up = 0
        return result

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(self.retries + 1):
            try:
                return await call()
            except openai.BadRequestError:
                raise
            except (openai.APIError, json.JSONDecodeError, IndexError, TypeError, AttributeError) as error:
                # The last three: a body of the right type with parts missing, as a dying server sends it.
                if _permanent(error):
                    raise DataError(f"{self.base_url}: {error}; check the address, OPENAI_API_KEY and model") from error
                if attempt == self.retries:
                    raise TransientError(
                        f"{self.base_url}: {type(error).__name__}: {error} ({attempt + 1} tries); see whether the "
                        "server runs. What was answered is kept: the same command goes on from there"
                    ) from error
                await asyncio.sleep(_wait(attempt, error))
        raise AssertionError("unreachable")


def _permanent(error: Exception) -> bool:
    if not isinstance(error, openai.APIStatusError):
        return False
    return 400 <= error.status_code < 500 and error.status_code not in (408, 409, 425, 429)


def _wait(attempt: int, error: Exception) -> float:
    """Seconds: what the server asks for, else exponential with full jitter, both capped."""
    if isinstance(error, openai.APIStatusError):
        asked: str = error.response.headers.get("retry-after", "")
        if asked.replace(".", "", 1).isdigit():
            return min(float(asked), _LONGEST_WAIT_S)
    return random.uniform(0.1, 1.0) * min(_FIRST_WAIT_S * 2.0**attempt, _LONGEST_WAIT_S)


def _reply(text: str, usage: Any, finish: str | None) -> Reply:
    if not isinstance(text, str):
        raise TypeError(f"the server sent {type(text).__name__} for a text")
    clean = text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be stored
    tokens = usage.completion_tokens if usage is not None else 0
    return Reply(clean, tokens, "length" if finish == "length" else "stop")


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
