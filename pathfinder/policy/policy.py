"""The policy: a model that continues the published prompt, in this process or behind an OpenAI-compatible server.

The servers that a stage starts have separate GPUs, and each worker that holds a PRM, or the policy itself, has one more
GPU. With ``search.shared_card``, a server and a worker share a GPU: the server takes
``search.vllm.gpu_memory_utilization`` of its memory, and the PRM needs the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any, Protocol

from ground.io import DataError, TransientError, digest_of
from pathfinder.core.params import Search
from pathfinder.core.prompts import END_OF_TURN, LABEL_TOKENS, policy_prompt
from pathfinder.engines.journal import Journal
from pathfinder.engines.sampling import Completion, Failure, Reply, Sampling, ServerSampling
from pathfinder.engines.vllm_server import vllm_servers
from pathfinder.models import cards
from pathfinder.models.folders import open_model, uncollected
from pathfinder.models.tokens import neutralise

POLICY = Path("artifacts/raw/models/policy")
_LOGS = Path(".pathfinder/vllm/policy")


class Policy(Protocol):
    """Draws one completion per prompt. A ``Generator`` is the policy in this process."""

    @property
    def specials(self) -> Collection[str]:
        """Special tokens that foreign text must not contain."""

    def generate(self, prompts: Sequence[str], keys: Sequence[str], sampling: Sampling) -> list[Completion]:
        """Return completions in the order of the prompts; ``keys`` name the random streams of the rows."""


class ServerPolicy:
    """A server's ``/completions``; only as repeatable as the server's seeds."""

    specials: Collection[str] = (END_OF_TURN, "<|im_start|>", "<|endoftext|>", *LABEL_TOKENS)

    def __init__(self, base_urls: Sequence[str], concurrency: int) -> None:
        from pathfinder.engines.openai_client import connect  # the embedded policy needs no client

        self._client = connect(base_urls, concurrency, timeout_s=600.0, retries=8)

    def generate(self, prompts: Sequence[str], keys: Sequence[str], sampling: Sampling) -> list[Completion]:
        """Draw all completions concurrently.

        Raises ``DataError`` if the server refuses a prompt, ``TransientError`` if it is down.
        """
        answers: dict[str, Completion] = {}

        def take(key: str, result: Reply | Failure) -> None:
            if not isinstance(result, Failure):
                answers[key] = Completion(result.text.removesuffix(END_OF_TURN), result.tokens, result.finish)
            elif result.outcome == "too_long":  # this failure ends the path; all others raise
                answers[key] = Completion("", 0, "too_long")
            elif result.outcome == "engine_error":
                raise TransientError(f"policy call {key}: {result.message}")
            else:
                raise DataError(f"policy call {key}: {result.message}; see the server's log, then run again")

        limits, stops = (sampling.temperature, sampling.top_p, sampling.max_tokens), (*sampling.stop, END_OF_TURN)
        requests = zip(keys, prompts, strict=True)
        self._client.complete(requests, ServerSampling(*limits, stops, sampling.include_stop), take)
        return [answers[key] for key in keys]


class KeptPolicy:
    """A policy that keeps its calls in a journal, so a resumed run repeats no call.

    A call is kept as a whole, because rounding makes a sample depend on its batch.
    """

    def __init__(self, policy: Policy, journal: Journal) -> None:
        self.specials: Collection[str] = policy.specials
        self._policy, self._journal = policy, journal

    def generate(self, prompts: Sequence[str], keys: Sequence[str], sampling: Sampling) -> list[Completion]:
        """Return completions in the order of the prompts, from the journal if it has this call."""
        name = digest_of([list(prompts), list(keys), [str(value) for value in astuple(sampling)]])[:32]
        if name in self._journal:
            return [Completion(*text) for text in self._journal[name]]
        drawn = self._policy.generate(prompts, keys, sampling)
        self._journal.append({name: [astuple(text) for text in drawn]})
        return drawn


def open_policy(settings: Search, folder: Path, urls: Sequence[str]) -> Policy:
    """The policy that the parameters name; ``urls`` are its servers, if it has any."""
    if settings.engine == "transformers":
        with uncollected():  # a policy behind a server needs no torch
            from pathfinder.engines.generate import Generator
        return Generator(folder, keeps=True)
    return ServerPolicy(urls, concurrency=settings.batch_size * settings.n)


def safe_prompt(policy: Policy, problem: str, steps: Sequence[str]) -> str:
    """The policy's prompt around a problem and steps in which no text can act as a special token."""
    return policy_prompt(neutralise(problem, policy.specials), [neutralise(step, policy.specials) for step in steps])


def policy_cards(search: Search) -> int:
    """The number of GPUs of a worker that draws from the policy and needs no other model."""
    return 1 if search.engine == "transformers" else 0


def deciding(search: Search) -> dict[str, Any]:
    """The settings that determine samples, without addresses and GPUs."""
    served = search.vllm.deciding if search.engine == "vllm" else None
    return search.model_dump(exclude={"vllm", "base_url", "shared_card"}) | {"served": served}


@contextmanager
def policy_servers(
    search: Search, workers: int, each: int, check: Callable[[], None]
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Start the policy's servers if the parameters ask for them, and lease every GPU of the stage.

    The stage has ``workers`` (0: as many as the remaining GPUs allow, or one) with ``each`` GPUs. Yields the servers'
    URLs, none if the policy runs in the workers, and the number of workers. ``check`` is called before anything starts,
    while this process holds the GPUs. Raises ``DataError`` if there are too few GPUs.
    """
    servers = search.vllm.gpus if search.engine == "vllm" else 0
    visible = len(cards.visible())
    left = servers if search.shared_card and servers else visible - servers
    workers = workers or max(left // max(each, 1), 1)
    needed = max(servers, workers * each) if search.shared_card else servers + workers * each
    if visible and needed > visible:
        raise DataError(
            f"the policy's servers and the PRM need {needed} GPUs, {visible} are visible; lower search.vllm.replicas, "
            "search.vllm.tensor_parallel or score.processes, or let them share: search.shared_card true"
        )
    with cards.lease(needed):
        check()
        if search.engine == "transformers":
            yield (), workers
            return
        if search.engine == "openai":
            yield (search.base_url,), workers
            return
        longest = min(search.context, open_model(POLICY).config.positions)
        with (
            cards.lease(servers, shared=search.shared_card) as mine,
            vllm_servers(POLICY, "policy", longest, search.vllm, _LOGS, mine) as urls,
        ):
            yield tuple(urls), workers
