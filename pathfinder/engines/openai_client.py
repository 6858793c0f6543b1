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
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import openai

from pathfinder.core.io import DataError, TransientError
from pathfinder.engines.replicas import Replica, Replicas

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0
_GIVEN_UP_IN_A_ROW = 8  # calls that used up their retries with no success between: the server is down

_LIKELIEST = 20  # vLLM's default limit
_NOTHING = -9999.0  # vLLM's word for minus infinity

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One call: ``key`` names it and seeds it; ``prompt`` is a user turn (chat) or raw text (complete)."""

    key: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """How a completion is drawn and where it ends. ``max_tokens`` 0 leaves the limit to the server.

    ``reasoning`` is for OpenAI's reasoning models: they take no sampling, and the limit under another name.
    """

    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    top_k: int = 0
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server wrote; ``tokens`` counts the completion's, ``prompt_tokens`` what the server read."""

    text: str
    tokens: int
    finish: Literal["stop", "length"]
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no text."""

    outcome: Literal["too_long", "refused", "engine_error"]
    message: str


Ask = Callable[[Sequence[Sequence[int]]], Awaitable[list[list[float]]]]
"""Prompts (token ids) to, per prompt, the wanted tokens' log-probabilities as the next one, and the likeliest's."""


@dataclass(frozen=True, slots=True)
class Chain(Generic[T]):
    """Readings of one thing that build on each other: ``work`` asks and returns the result."""

    key: str
    work: Callable[[Ask], Awaitable[T]]


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


R = TypeVar("R", bound=_Keyed)
Sink = Callable[[str, "Reply | Failure"], None]
Clients = dict[str, openai.AsyncOpenAI]


class ServerClient:
    """Calls to one server or several equal ones: at most ``concurrency`` at a time each, ``timeout_s`` a call.

    A transient failure lowers what its server is given at a time and is tried up to ``retries`` more times, at
    whichever server has room.
    """

    def __init__(self, base_urls: Sequence[str], concurrency: int, timeout_s: float, retries: int, model: str = ""):
        self.model = model
        self._replicas = Replicas(base_urls, concurrency)
        self._most = concurrency * len(base_urls)
        self._timeout_s, self._retries = timeout_s, retries
        self._given_up = 0

    def served_model(self, wanted: str | None = None) -> str:
        """The model that the servers offer: ``wanted`` where given, else their only one; ``DataError`` otherwise.

        A server that cannot be reached is left out while another one answers.
        """
        offers = asyncio.run(self._offers())
        model = wanted or next(iter(offers.values()))[0]
        for url, offered in offers.items():
            if model not in offered or (wanted is None and len(offered) > 1):
                raise DataError(
                    f"{url}: serves {sorted(offered)}, expected {wanted or 'exactly one model, everywhere the same'}; "
                    "start the server with that model (vLLM: --served-model-name)"
                )
        return model

    async def _offers(self) -> dict[str, list[str]]:
        """Per server that answers, the models that it offers; raises where none does."""

        async def ask(url: str) -> list[str]:
            async with self._open(url) as client:
                return [model.id async for model in await client.models.list()] or ["(no model)"]

        replicas = self._replicas.all
        tries = self._retries if len(replicas) == 1 else min(self._retries, 2)  # do not wait long for a dead one
        asked = (self._patiently(lambda url=replica.url: ask(url), tries, replica.url) for replica in replicas)  # type: ignore[misc]
        found = await asyncio.gather(*asked, return_exceptions=True)
        offers: dict[str, list[str]] = {}
        for replica, offered in zip(replicas, found, strict=True):
            if isinstance(offered, TransientError):
                replica.rest(time.monotonic())
                print(f"{offered}\n{replica.url} is left out for now", file=sys.stderr)
            elif isinstance(offered, BaseException):
                raise offered
            else:
                offers[replica.url] = offered
        if not offers:
            raise next(error for error in found if isinstance(error, TransientError))
        return offers

    def chat(
        self, requests: Iterable[Request], sampled: Sampled, sink: Sink, before: Sequence[tuple[str, str]] = ()
    ) -> None:
        """One user turn each; ``sink`` gets every result as it comes, in no fixed order.

        ``before`` are the turns (role, text) that every conversation starts with.

        Raises ``TransientError`` when the server is down, ``DataError`` for a wrong address, key or model.
        """

        async def call(client: openai.AsyncOpenAI, request: Request) -> Reply | Failure:
            turns: Any = [{"role": role, "content": text} for role, text in (*before, ("user", request.prompt))]
            answer = await client.chat.completions.create(messages=turns, **self._settings(request, sampled))
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

    def read(self, chains: Iterable[Chain[T]], tokens: Sequence[int], sink: Callable[[str, T | Failure], None]) -> None:
        """Log-probabilities (whole vocabulary, before any sampling) of ``tokens`` after token-id prompts; as ``chat``.

        One generated token a prompt: vLLM computes only what its prefix cache lacks, which ``prompt_logprobs`` would
        switch off. ``logprob_token_ids`` names exactly the tokens wanted; a server that does not know it is asked for
        its 20 likeliest, and a ``DataError`` says so where one of ``tokens`` is not among them.
        """
        names = [f"token_id:{token}" for token in tokens]

        async def call(client: openai.AsyncOpenAI, chain: Chain[T]) -> T | Failure:
            async def ask(prompts: Sequence[Sequence[int]]) -> list[list[float]]:
                if not prompts:
                    return []
                answer = await client.completions.create(
                    model=self.model,
                    prompt=[list(prompt) for prompt in prompts],
                    max_tokens=1,
                    temperature=0.0,
                    logprobs=_LIKELIEST,
                    extra_body={
                        "logprob_token_ids": list(tokens),
                        "return_tokens_as_token_ids": True,
                        "ignore_eos": True,
                    },
                )
                if len(answer.choices) != len(prompts):
                    raise TypeError(f"{len(answer.choices)} answers to {len(prompts)} prompts")
                return [_readings(choice, names) for choice in sorted(answer.choices, key=lambda choice: choice.index)]

            return await chain.work(ask)

        self._run(chains, call, sink)

    def _settings(self, request: Request, sampled: Sampled) -> dict[str, Any]:
        seed = int(hashlib.sha256(request.key.encode()).hexdigest()[:7], 16)
        settings: dict[str, Any] = {"model": self.model, "seed": seed}
        if not sampled.reasoning:
            settings |= {"temperature": sampled.temperature, "top_p": sampled.top_p}
        if sampled.max_tokens:
            settings["max_completion_tokens" if sampled.reasoning else "max_tokens"] = sampled.max_tokens
        if sampled.stop:
            settings["stop"] = list(sampled.stop)
        ours: dict[str, Any] = {"include_stop_str_in_output": True} if sampled.include_stop else {}  # vLLM's names
        if sampled.top_k:
            ours["top_k"] = sampled.top_k
        return settings | ({"extra_body": ours} if ours else {})

    def _open(self, url: str) -> openai.AsyncOpenAI:
        key = os.environ.get("OPENAI_API_KEY") or "none"
        return openai.AsyncOpenAI(base_url=url, api_key=key, timeout=self._timeout_s, max_retries=0)

    def _run(
        self,
        requests: Iterable[R],
        call: Callable[[openai.AsyncOpenAI, R], Awaitable[T | Failure]],
        sink: Callable[[str, T | Failure], None],
    ) -> None:
        waiting = iter(requests)

        async def finish(clients: Clients, request: R, replica: Replica, slots: asyncio.Semaphore) -> None:
            try:
                sink(request.key, await self._outcome(clients, call, request, replica))
            finally:
                slots.release()

        async def work_all() -> None:
            slots = asyncio.Semaphore(self._most)  # calls that wait for another try count too
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                urls = [replica.url for replica in self._replicas.all]
                clients = {url: await stack.enter_async_context(self._open(url)) for url in urls}
                while True:
                    await slots.acquire()
                    replica = await self._replicas.acquire()
                    request = next(waiting, None)  # taken, and its prompt built, when it can be sent
                    if request is None:
                        self._replicas.release(replica, 0.0, None)
                        return
                    group.create_task(finish(clients, request, replica, slots))

        try:
            asyncio.run(work_all())
        except BaseExceptionGroup as failures:  # not except*: before Python 3.11.4 what that raises is a group again
            ours, others = failures.split((DataError, TransientError))
            if ours is None or others is not None:
                raise
            raise _first(ours) from None

    async def _outcome(
        self,
        clients: Clients,
        call: Callable[[openai.AsyncOpenAI, R], Awaitable[T | Failure]],
        request: R,
        first: Replica | None,
    ) -> T | Failure:
        async def once() -> T | Failure:
            nonlocal first
            replica, first = first or await self._replicas.acquire(), None
            fine: bool | None = None
            began = time.monotonic()
            try:
                result = await call(clients[replica.url], request)
                fine = True
                return result
            except openai.BadRequestError:
                fine = True  # about this prompt, not about the server
                raise
            except Exception:
                fine = False
                raise
            finally:
                self._replicas.release(replica, began, fine)

        try:
            result = await self._patiently(once, self._retries, " or ".join(clients))
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

    async def _patiently(self, call: Callable[[], Awaitable[T]], retries: int, where: str) -> T:
        for attempt in range(retries + 1):
            try:
                return await call()
            except openai.BadRequestError:
                raise
            except (openai.APIError, json.JSONDecodeError, IndexError, TypeError, AttributeError) as error:
                # The last three: a body of the right type with parts missing, as a dying server sends it.
                if _permanent(error):
                    raise DataError(f"{where}: {error}; check the address, OPENAI_API_KEY and model") from error
                if attempt == retries:
                    raise TransientError(
                        f"{where}: {type(error).__name__}: {error} ({attempt + 1} tries); see whether the "
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
    wrote, read = (usage.completion_tokens, usage.prompt_tokens) if usage is not None else (0, 0)
    return Reply(clean, wrote, "length" if finish == "length" else "stop", read)


def _readings(choice: Any, names: Sequence[str]) -> list[float]:
    likely: dict[str, float] = choice.logprobs.top_logprobs[0]
    missing = [name for name in names if name not in likely]
    if missing:
        raise DataError(
            f"the server's log-probabilities leave out {', '.join(missing)} (found: {', '.join(sorted(likely)[:5])}); "
            "a server is needed that knows logprob_token_ids and return_tokens_as_token_ids, such as a recent vLLM"
        )
    found = [float(likely[name]) for name in names]
    if min(found) <= _NOTHING:
        raise DataError("the server masks log-probabilities; vLLM's --logprobs-mode must be raw_logprobs, its default")
    return [*found, max(float(value) for value in likely.values())]


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
