"""The only client of OpenAI-compatible servers (vLLM, llama.cpp, hosted APIs); it sends many calls concurrently.

Transient failures (429, 5xx, timeouts, resets, truncated or unreadable bodies) are retried with jitter and a maximum
wait. A prompt that is too long or refused is a result. A wrong address, API key or model and a refused setting stop the
run. The key is read from ``OPENAI_API_KEY``; local servers accept any value.
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
from functools import partial
from typing import Any, TypeVar

import openai

from ground.io import DataError, TransientError
from ground.settings import require_address, require_certificate
from ground.show import counted
from ground.text import printable
from pathfinder.engines.replicas import Replica, Replicas
from pathfinder.engines.sampling import Failure, Reply, ServerSampling, Turns

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0
_FAILED_IN_A_ROW = 8  # after this many calls without a success between them, the server counts as down
_TOP_LOGPROBS = 20  # vLLM's default limit
_LONGEST_MESSAGE = 500
_TOO_LONG = ("context length", "context size", "maximum context", "too long")  # in the messages of servers
_TEXTS = ("messages", "prompt", "input")  # the parts of a call that hold the prompt, not a setting
_MINUS_INFINITY = -9999.0  # as vLLM writes it
_NEUTRAL = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Neutral sampling settings. Without them, vLLM takes these from the model's generation_config.json, unless its command
has ``--generation-config vllm``. Other servers refuse them."""

T = TypeVar("T")
Sink = Callable[[str, T | Failure], None]
"""Receives the key and the result of each call as it arrives."""
Ask = Callable[[Sequence[Sequence[int]]], Awaitable[list[list[float]]]]
"""Maps prompts (token ids) to log-probabilities of the next token: first of each requested token, then the highest."""
_Call = Callable[[openai.AsyncOpenAI], Awaitable[T | Failure]]


class ServerClient:
    """Sends calls to one or more equivalent servers, at most ``concurrency`` per server, ``timeout_s`` per call.

    A call has a key, which determines its seed. A transient failure lowers the limit of that server, and the call is
    retried up to ``retries`` times, on any server with free capacity. Raises ``DataError`` for an invalid address.
    """

    def __init__(self, base_urls: Sequence[str], concurrency: int, timeout_s: float, retries: int, model: str = ""):
        self.model = model
        for url in base_urls:
            require_address(url, "give one such as http://localhost:8000/v1")
        self._replicas = Replicas(base_urls, concurrency)
        self._most = concurrency * len(base_urls)
        self._timeout_s, self._retries = timeout_s, retries
        self._are_vllm = self._has_warned = False
        self._failed = 0

    async def offers(self) -> dict[str, list[str]]:
        """The models that each reachable server offers; raises ``TransientError`` if none answers."""
        owners = set[str]()

        async def ask(url: str, _attempt: int) -> list[str]:
            async with self._open(url) as client:
                models = [model async for model in await client.models.list()]
            owners.update(getattr(model, "owned_by", "") or "" for model in models)
            return [model.id for model in models] or ["(no model)"]

        replicas = self._replicas.all
        retries = self._retries if len(replicas) == 1 else min(self._retries, 2)  # a dead server must not delay all
        asked = (self._retried(partial(ask, replica.url), retries, replica.url) for replica in replicas)
        results = await asyncio.gather(*asked, return_exceptions=True)
        found: dict[str, list[str]] = {}
        for replica, result in zip(replicas, results, strict=True):
            if isinstance(result, TransientError):
                replica.rest(time.monotonic())
                if len(replicas) > 1:
                    print(printable(f"{result}\n{replica.url} is left out for now"), file=sys.stderr)
            elif isinstance(result, BaseException):
                raise result
            else:
                found[replica.url] = result
        if not found:
            raise next(error for error in results if isinstance(error, TransientError))
        self._are_vllm = owners == {"vllm"}
        return found

    def chat(
        self, requests: Iterable[tuple[str, str]], sampling: ServerSampling, sink: Sink[Reply], before: Turns = ()
    ) -> None:
        """Answer user turns, given as (key, text); every conversation starts with the turns ``before``.

        Results arrive in any order. Raises ``TransientError`` if the server is down, ``DataError`` for a wrong address,
        API key or model and for a refused setting.
        """

        async def call(key: str, text: str, client: openai.AsyncOpenAI) -> Reply | Failure:
            turns: Any = [{"role": role, "content": content} for role, content in (*before, ("user", text))]
            answer = await client.chat.completions.create(messages=turns, **self._settings(key, sampling))
            choice = answer.choices[0]
            if choice.finish_reason == "content_filter" or choice.message.refusal:
                return Failure("refused", choice.message.refusal or "content filter")
            thought = getattr(choice.message, "reasoning_content", None)
            thinking = f"<think>{thought}</think>" if thought else ""
            return _reply(thinking + (choice.message.content or ""), choice.finish_reason, answer)

        self._run(((key, partial(call, key, text)) for key, text in requests), sink)

    def complete(self, requests: Iterable[tuple[str, str]], sampling: ServerSampling, sink: Sink[Reply]) -> None:
        """Continue raw texts, given as (key, text); otherwise like ``chat``."""

        async def call(key: str, text: str, client: openai.AsyncOpenAI) -> Reply | Failure:
            answer = await client.completions.create(prompt=text, **self._settings(key, sampling))
            return _reply(answer.choices[0].text, answer.choices[0].finish_reason, answer)

        self._run(((key, partial(call, key, text)) for key, text in requests), sink)

    def read(
        self, keys: Iterable[str], work: Callable[[str, Ask], Awaitable[T]], tokens: Sequence[int], sink: Sink[T]
    ) -> None:
        """Read log-probabilities (full vocabulary, before sampling) of ``tokens`` after prompts of token ids.

        ``work`` computes the result of a key; its ``Ask`` calls may depend on each other. Each prompt generates one
        token, so vLLM computes only the part missing from its prefix cache; ``prompt_logprobs`` would disable the
        cache. ``logprob_token_ids`` requests exactly ``tokens``. A server without that option returns its 20 most
        probable tokens. Raises ``DataError`` if one of ``tokens`` is not among them, and like ``chat``.
        """
        names = [f"token_id:{token}" for token in tokens]
        options = {"logprob_token_ids": list(tokens), "return_tokens_as_token_ids": True, "ignore_eos": True}
        settings: dict[str, Any] = {"max_tokens": 1, "temperature": 0.0, "logprobs": _TOP_LOGPROBS}
        settings["extra_body"] = options

        async def call(key: str, client: openai.AsyncOpenAI) -> T | Failure:
            async def ask(prompts: Sequence[Sequence[int]]) -> list[list[float]]:
                if not prompts:
                    return []
                ids = [list(prompt) for prompt in prompts]
                answer = await client.completions.create(model=self.model, prompt=ids, **settings)
                if len(answer.choices) != len(prompts):
                    raise TypeError(f"{len(answer.choices)} answers to {len(prompts)} prompts")
                return [_logprobs(choice, names) for choice in sorted(answer.choices, key=lambda choice: choice.index)]

            return await work(key, ask)

        self._run(((key, partial(call, key)) for key in keys), sink)

    def _settings(self, key: str, sampling: ServerSampling) -> dict[str, Any]:
        settings: dict[str, Any] = {"model": self.model, "seed": seed_of(key)}
        if not sampling.reasoning:
            settings |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.max_tokens:
            settings["max_completion_tokens" if sampling.reasoning else "max_tokens"] = sampling.max_tokens
        if sampling.stop:
            settings["stop"] = list(sampling.stop)
        extensions = {"include_stop_str_in_output": sampling.include_stop, "top_k": sampling.top_k}  # of vLLM
        body: dict[str, float] = {name: value for name, value in extensions.items() if value}
        if self._are_vllm:
            body = _NEUTRAL | body
        return settings | ({"extra_body": body} if body else {})

    def _open(self, url: str) -> openai.AsyncOpenAI:
        key = os.environ.get("OPENAI_API_KEY") or "none"
        return openai.AsyncOpenAI(base_url=url, api_key=key, timeout=self._timeout_s, max_retries=0)

    def _run(self, calls: Iterable[tuple[str, _Call[T]]], sink: Sink[T]) -> None:
        waiting = iter(calls)

        async def run_all() -> None:
            slots = asyncio.Semaphore(self._most)  # a call keeps its slot while it waits to retry

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
                    following = next(waiting, None)  # builds the prompt only when it can be sent
                    if following is None:
                        self._replicas.release(replica, 0.0, None)
                        return
                    group.create_task(finish(*following, replica))

        try:
            asyncio.run(run_all())
        except BaseExceptionGroup as failures:  # not except*: before Python 3.11.4 it raises a group again
            ours, others = failures.split((DataError, TransientError, OSError))
            if ours is None or others is not None:
                raise
            raise ours.exceptions[0] from None

    async def _outcome(self, clients: dict[str, openai.AsyncOpenAI], call: _Call[T], first: Replica) -> T | Failure:
        async def attempt(number: int) -> T | Failure:
            replica = await self._replicas.acquire() if number else first
            succeeded: bool | None = None  # a cancelled call says nothing about the server
            began = time.monotonic()
            try:
                result = await call(clients[replica.url])
                succeeded = True
                return result
            except Exception as error:
                succeeded = isinstance(error, openai.BadRequestError)  # the prompt is at fault, not the server
                raise
            finally:
                self._replicas.release(replica, began, succeeded)

        try:
            result = await self._retried(attempt, self._retries, " or ".join(clients))
        except openai.BadRequestError as error:
            return _refusal(error, " or ".join(clients))
        except TransientError as error:
            self._failed += 1
            if self._failed >= _FAILED_IN_A_ROW:
                raise
            return Failure("engine_error", str(error))
        self._failed = 0
        return result

    async def _retried(self, call: Callable[[int], Awaitable[T]], retries: int, where: str) -> T:
        """The result of ``call(attempt)``; transient failures are retried, and the client prints its first."""
        attempt = 0
        while True:
            try:
                return await call(attempt)
            except openai.BadRequestError:
                raise
            except (openai.APIError, json.JSONDecodeError, IndexError, TypeError, AttributeError) as error:
                # The last three: a dying server sends a body of the right type with missing parts.
                status = getattr(error, "status_code", 500)
                if 400 <= status < 500 and status not in (408, 409, 425, 429):
                    raise DataError(f"{where}: {_said(error)}; check the address, OPENAI_API_KEY and model") from error
                require_certificate(error, where)
                failure = f"{where}: {type(error).__name__}: {_said(error)}"
                if attempt == retries:
                    raise TransientError(
                        f"{failure} ({attempt + 1} tries); check that the server runs, then run the same command again"
                    ) from error
                if not self._has_warned:
                    print(printable(f"{failure}; trying again, up to {counted(retries, 'time')}"), file=sys.stderr)
                    self._has_warned = True
                await asyncio.sleep(_wait(attempt, error))
                attempt += 1


def seed_of(key: str) -> int:
    """The seed that a call with this key asks for: the first 28 bits of the sha256 of the key."""
    return int(hashlib.sha256(key.encode()).hexdigest()[:7], 16)


def connect(
    base_urls: Sequence[str], concurrency: int, timeout_s: float, retries: int, wanted: str | None = None
) -> ServerClient:
    """Make a client for the model ``wanted``, or by default for the only model that the servers offer.

    An unreachable server is skipped if another server answers. Raises ``DataError`` if a server does not offer the
    model, ``TransientError`` if none answers.
    """
    client = ServerClient(base_urls, concurrency, timeout_s, retries)
    offers = asyncio.run(client.offers())
    client.model = wanted or next(iter(offers.values()))[0]
    for url, offered in offers.items():
        if client.model not in offered or (wanted is None and len(offered) > 1):
            raise DataError(
                f"{url}: serves {sorted(offered)}, expected {wanted or 'exactly one model, the same everywhere'}; "
                "start the server with that model (vLLM: --served-model-name)"
            )
    return client


def _said(error: Exception) -> str:
    """A server's error message, in one line of at most 500 characters, without the API key that it may repeat."""
    text, key = " ".join(str(error).split()), os.environ.get("OPENAI_API_KEY")
    return (text.replace(key, "(the key)") if key else text)[:_LONGEST_MESSAGE]


def _refusal(error: openai.BadRequestError, where: str) -> Failure:
    """The outcome of a refused call; raises ``DataError`` if the server refuses a setting of all prompts."""
    message = _said(error).lower()
    if error.code == "context_length_exceeded" or any(sign in message for sign in _TOO_LONG):
        return Failure("too_long", message)
    if error.param and not str(error.param).startswith(_TEXTS):
        raise DataError(f"{where}: refuses the setting {error.param} ({message}); use a model that accepts it")
    return Failure("refused", message)


def _wait(attempt: int, error: Exception) -> float:
    """Seconds to wait: as many as the server asks for, or exponential with full jitter, up to a limit."""
    asked = error.response.headers.get("retry-after", "") if isinstance(error, openai.APIStatusError) else ""
    if asked.replace(".", "", 1).isdecimal():
        return min(float(asked), _LONGEST_WAIT_S)
    return random.uniform(0.1, 1.0) * min(_FIRST_WAIT_S * 2.0**attempt, _LONGEST_WAIT_S)


def _reply(text: str, finish: str | None, answer: Any) -> Reply:
    storable = text.encode("utf-8", "replace").decode()  # without lone surrogates
    tokens, asked = (getattr(answer.usage, name, None) or 0 for name in ("completion_tokens", "prompt_tokens"))
    return Reply(storable, tokens, "length" if finish == "length" else "stop", asked, str(answer.id or ""))


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
