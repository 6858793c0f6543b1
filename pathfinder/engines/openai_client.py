"""The only client of OpenAI-compatible servers (vLLM, llama.cpp, hosted APIs); it sends many calls concurrently.

Transient failures (429, 5xx, timeouts, resets, truncated or unreadable bodies) are retried with jitter and a maximum
wait. A prompt that is too long or refused is a result. A wrong address, API key or model stops the run. The key is read
from ``OPENAI_API_KEY``; local servers accept any value.
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
from functools import partial
from typing import Any, Generic, TypeVar

import openai

from pathfinder.core.io import DataError, TransientError
from pathfinder.engines.replicas import Replica, Replicas
from pathfinder.engines.sampling import Failure, Reply, ServerSampling

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0
_FAILED_IN_A_ROW = 8  # after this many calls without a success between them, the server counts as down
_TOP_LOGPROBS = 20  # vLLM's default limit
_MINUS_INFINITY = -9999.0  # as vLLM writes it

T = TypeVar("T")
Sink = Callable[[str, T | Failure], None]
"""Receives the key and the result of each call as it arrives."""
_Call = Callable[[openai.AsyncOpenAI], Awaitable[T | Failure]]


@dataclass(frozen=True, slots=True)
class Request:
    """A call. ``key`` names it and determines its seed; ``prompt`` is a user turn (chat) or raw text (complete)."""

    key: str
    prompt: str


Ask = Callable[[Sequence[Sequence[int]]], Awaitable[list[list[float]]]]
"""Maps prompts (token ids) to log-probabilities of the next token: those of the requested tokens, then the highest."""


@dataclass(frozen=True, slots=True)
class Chain(Generic[T]):
    """Log-probability calls that depend on each other: ``work`` calls ``Ask`` and returns the result."""

    key: str
    work: Callable[[Ask], Awaitable[T]]


class ServerClient:
    """Sends calls to one or more equivalent servers, at most ``concurrency`` per server, ``timeout_s`` per call.

    A transient failure lowers the limit of that server. The call is retried up to ``retries`` times, on any server with
    free capacity.
    """

    def __init__(self, base_urls: Sequence[str], concurrency: int, timeout_s: float, retries: int, model: str = ""):
        self.model = model
        self._replicas = Replicas(base_urls, concurrency)
        self._most = concurrency * len(base_urls)
        self._timeout_s, self._retries = timeout_s, retries
        self._failed = 0

    def served_model(self, wanted: str | None = None) -> str:
        """Return the model to ask: ``wanted``, or by default the only model that the servers offer.

        An unreachable server is skipped if another one answers. Raises ``DataError`` if a server does not offer the
        model, ``TransientError`` if none answers.
        """
        offers = asyncio.run(self._offers())
        model = wanted or next(iter(offers.values()))[0]
        for url, offered in offers.items():
            if model not in offered or (wanted is None and len(offered) > 1):
                raise DataError(
                    f"{url}: serves {sorted(offered)}, expected {wanted or 'exactly one model, the same everywhere'}; "
                    "start the server with that model (vLLM: --served-model-name)"
                )
        return model

    async def _offers(self) -> dict[str, list[str]]:
        """The models that each reachable server offers."""

        async def ask(url: str) -> list[str]:
            async with self._open(url) as client:
                return [model.id async for model in await client.models.list()] or ["(no model)"]

        replicas = self._replicas.all
        tries = (
            self._retries if len(replicas) == 1 else min(self._retries, 2)
        )  # a dead replica must not delay the others
        asked = (self._retried(partial(ask, replica.url), tries, replica.url) for replica in replicas)
        results = await asyncio.gather(*asked, return_exceptions=True)
        offers: dict[str, list[str]] = {}
        for replica, result in zip(replicas, results, strict=True):
            if isinstance(result, TransientError):
                replica.rest(time.monotonic())
                print(f"{result}\n{replica.url} is left out for now", file=sys.stderr)
            elif isinstance(result, BaseException):
                raise result
            else:
                offers[replica.url] = result
        if not offers:
            raise next(error for error in results if isinstance(error, TransientError))
        return offers

    def chat(
        self,
        requests: Iterable[Request],
        sampling: ServerSampling,
        sink: Sink[Reply],
        before: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Answer user turns; every conversation starts with the turns (role, text) ``before``.

        Results arrive in any order. Raises ``TransientError`` if the server is down, ``DataError`` for a wrong address,
        API key or model.
        """

        async def call(request: Request, client: openai.AsyncOpenAI) -> Reply | Failure:
            turns: Any = [{"role": role, "content": text} for role, text in (*before, ("user", request.prompt))]
            answer = await client.chat.completions.create(messages=turns, **self._settings(request, sampling))
            choice = answer.choices[0]
            if choice.finish_reason == "content_filter" or choice.message.refusal:
                return Failure("refused", choice.message.refusal or "content filter")
            thought = getattr(choice.message, "reasoning_content", None)
            text = (f"<think>{thought}</think>" if thought else "") + (choice.message.content or "")
            return _reply(text, answer.usage, choice.finish_reason)

        self._run(((request.key, partial(call, request)) for request in requests), sink)

    def complete(self, requests: Iterable[Request], sampling: ServerSampling, sink: Sink[Reply]) -> None:
        """Continue raw texts; otherwise like ``chat``."""

        async def call(request: Request, client: openai.AsyncOpenAI) -> Reply | Failure:
            answer = await client.completions.create(prompt=request.prompt, **self._settings(request, sampling))
            return _reply(answer.choices[0].text, answer.usage, answer.choices[0].finish_reason)

        self._run(((request.key, partial(call, request)) for request in requests), sink)

    def read(self, chains: Iterable[Chain[T]], tokens: Sequence[int], sink: Sink[T]) -> None:
        """Read log-probabilities (full vocabulary, before sampling) of ``tokens`` after prompts of token ids.

        Each prompt generates one token, so vLLM computes only the part missing from its prefix cache;
        ``prompt_logprobs`` would disable the cache. ``logprob_token_ids`` requests exactly ``tokens``. A server without
        that option returns its 20 most probable tokens. Raises ``DataError`` if one of ``tokens`` is not among them,
        and like ``chat``.
        """
        names = [f"token_id:{token}" for token in tokens]
        options = {"logprob_token_ids": list(tokens), "return_tokens_as_token_ids": True, "ignore_eos": True}

        async def call(chain: Chain[T], client: openai.AsyncOpenAI) -> T | Failure:
            async def ask(prompts: Sequence[Sequence[int]]) -> list[list[float]]:
                if not prompts:
                    return []
                answer = await client.completions.create(
                    model=self.model,
                    prompt=[list(prompt) for prompt in prompts],
                    max_tokens=1,
                    temperature=0.0,
                    logprobs=_TOP_LOGPROBS,
                    extra_body=options,
                )
                if len(answer.choices) != len(prompts):
                    raise TypeError(f"{len(answer.choices)} answers to {len(prompts)} prompts")
                return [_logprobs(choice, names) for choice in sorted(answer.choices, key=lambda choice: choice.index)]

            return await chain.work(ask)

        self._run(((chain.key, partial(call, chain)) for chain in chains), sink)

    def _settings(self, request: Request, sampling: ServerSampling) -> dict[str, Any]:
        seed = int(hashlib.sha256(request.key.encode()).hexdigest()[:7], 16)
        settings: dict[str, Any] = {"model": self.model, "seed": seed}
        if not sampling.reasoning:
            settings |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.max_tokens:
            settings["max_completion_tokens" if sampling.reasoning else "max_tokens"] = sampling.max_tokens
        if sampling.stop:
            settings["stop"] = list(sampling.stop)
        extensions: dict[str, Any] = {"include_stop_str_in_output": True} if sampling.include_stop else {}  # of vLLM
        if sampling.top_k:
            extensions["top_k"] = sampling.top_k
        return settings | ({"extra_body": extensions} if extensions else {})

    def _open(self, url: str) -> openai.AsyncOpenAI:
        key = os.environ.get("OPENAI_API_KEY") or "none"
        return openai.AsyncOpenAI(base_url=url, api_key=key, timeout=self._timeout_s, max_retries=0)

    def _run(self, calls: Iterable[tuple[str, _Call[T]]], sink: Sink[T]) -> None:
        waiting = iter(calls)

        async def run_all() -> None:
            slots = asyncio.Semaphore(self._most)  # a call that waits before its next try keeps its slot

            async def finish(key: str, call: _Call[T], replica: Replica) -> None:
                try:
                    sink(key, await self._outcome(clients, call, replica))
                finally:
                    slots.release()

            async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                urls = [replica.url for replica in self._replicas.all]
                clients = {url: await stack.enter_async_context(self._open(url)) for url in urls}
                while True:
                    await slots.acquire()
                    replica = await self._replicas.acquire()
                    following = next(waiting, None)  # builds the prompt only now that it can be sent
                    if following is None:
                        self._replicas.release(replica, 0.0, None)
                        return
                    group.create_task(finish(*following, replica))

        try:
            asyncio.run(run_all())
        except BaseExceptionGroup as failures:  # not except*: before Python 3.11.4 it raises a group again
            ours, others = failures.split((DataError, TransientError))
            if ours is None or others is not None:
                raise
            raise _first(ours) from None

    async def _outcome(
        self, clients: dict[str, openai.AsyncOpenAI], call: _Call[T], first: Replica | None
    ) -> T | Failure:
        async def attempt() -> T | Failure:
            nonlocal first
            replica, first = first or await self._replicas.acquire(), None
            succeeded: bool | None = None
            began = time.monotonic()
            try:
                result = await call(clients[replica.url])
                succeeded = True
                return result
            except openai.BadRequestError:
                succeeded = True  # the prompt is at fault, not the server
                raise
            except Exception:
                succeeded = False
                raise
            finally:
                self._replicas.release(replica, began, succeeded)

        try:
            result = await self._retried(attempt, self._retries, " or ".join(clients))
        except openai.BadRequestError as error:
            message = error.message.lower()
            too_long = "context length" in message or "maximum context" in message or "too long" in message
            return Failure("too_long" if too_long or error.code == "context_length_exceeded" else "refused", message)
        except TransientError as error:
            self._failed += 1
            if self._failed >= _FAILED_IN_A_ROW:
                raise
            return Failure("engine_error", str(error))
        self._failed = 0
        return result

    async def _retried(self, call: Callable[[], Awaitable[T]], retries: int, where: str) -> T:
        for attempt in range(retries + 1):
            try:
                return await call()
            except openai.BadRequestError:
                raise
            except (openai.APIError, json.JSONDecodeError, IndexError, TypeError, AttributeError) as error:
                # The last three: a body of the right type with missing parts, as a dying server sends it.
                if _is_permanent(error):
                    raise DataError(f"{where}: {error}; check the address, OPENAI_API_KEY and model") from error
                if attempt == retries:
                    raise TransientError(
                        f"{where}: {type(error).__name__}: {error} ({attempt + 1} tries); check that the server runs. "
                        "All answers so far are kept: the same command resumes from them"
                    ) from error
                await asyncio.sleep(_wait(attempt, error))
        raise AssertionError("unreachable")


def connect(
    base_urls: Sequence[str], concurrency: int, timeout_s: float, retries: int, wanted: str | None = None
) -> ServerClient:
    """Make a client for the model ``wanted`` or the only one offered; raises like ``ServerClient.served_model``."""
    client = ServerClient(base_urls, concurrency, timeout_s, retries)
    client.model = client.served_model(wanted)
    return client


def _is_permanent(error: Exception) -> bool:
    if not isinstance(error, openai.APIStatusError):
        return False
    return 400 <= error.status_code < 500 and error.status_code not in (408, 409, 425, 429)


def _wait(attempt: int, error: Exception) -> float:
    """Seconds to wait: as the server asks, or exponential with full jitter; both are limited."""
    if isinstance(error, openai.APIStatusError):
        asked: str = error.response.headers.get("retry-after", "")
        if asked.replace(".", "", 1).isdigit():
            return min(float(asked), _LONGEST_WAIT_S)
    return random.uniform(0.1, 1.0) * min(_FIRST_WAIT_S * 2.0**attempt, _LONGEST_WAIT_S)


def _reply(text: str, usage: Any, finish: str | None) -> Reply:
    if not isinstance(text, str):
        raise TypeError(f"the server sent {type(text).__name__} instead of text")
    storable = text.encode("utf-8", "replace").decode()  # without lone surrogates
    tokens, prompt_tokens = (usage.completion_tokens, usage.prompt_tokens) if usage is not None else (0, 0)
    return Reply(storable, tokens, "length" if finish == "length" else "stop", prompt_tokens)


def _logprobs(choice: Any, names: Sequence[str]) -> list[float]:
    top: dict[str, float] = choice.logprobs.top_logprobs[0]
    missing = [name for name in names if name not in top]
    if missing:
        raise DataError(
            f"the server's log-probabilities do not include {', '.join(missing)} (only {', '.join(sorted(top)[:5])}); "
            "use a server that knows logprob_token_ids and return_tokens_as_token_ids, such as a recent vLLM"
        )
    wanted = [float(top[name]) for name in names]
    if min(wanted) <= _MINUS_INFINITY:
        raise DataError("the server masks log-probabilities; start vLLM with --logprobs-mode raw_logprobs, its default")
    return [*wanted, max(float(value) for value in top.values())]


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
