"""The PRM behind a server: the scores of ``pathfinder.prm.scoring`` from vLLM's prefix cache, by one-token completions.

Per step one reading a mark: the prompt up to the label goes over as token ids, and the log-probabilities of ``<+>`` and
``<->`` as the next token come back. The server keeps what prompts share, as the trees do in process; the prompts, the
passes and the rules are the same objects. Only the PRM's tokenizer and ``pathfinder.json`` are read here, no weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pathfinder.core.io import DataError, TransientError, read_json
from pathfinder.core.params import Score
from pathfinder.engines.openai_client import Ask, Chain, Failure, ServerClient
from pathfinder.engines.vllm_server import vllm_servers
from pathfinder.models.description import variant_of
from pathfinder.models.model import resolve
from pathfinder.models.tokens import load_tokenizer
from pathfinder.prm.scoring import (
    WAVE,
    Candidates,
    FoundAt,
    Solution,
    StepScore,
    queries_of,
    step_score,
)
from pathfinder.tree.passes import PRESETS, Mode, Prompter, Query, passes_for

LOGS = Path(".pathfinder/vllm")
_TIMEOUT_S = 600.0
_RETRIES = 8


class ServedScorer:
    """A PRM that ``base_urls`` offer (equal servers); ``folder`` holds its tokenizer and ``pathfinder.json``.

    ``concurrency`` is how many solutions are asked about at a time. Raises ``DataError`` where a server offers another
    number of models than one.
    """

    def __init__(
        self,
        folder: Path,
        base_urls: Sequence[str],
        preset: str = "default",
        concurrency: int = 32,
        mode: Mode = Mode.BOTH,
    ) -> None:
        if preset not in PRESETS:
            raise DataError(f"unknown preset {preset!r}; expected one of {', '.join(PRESETS)}")
        path = resolve(folder)
        self.variant = variant_of(path)
        self._prompter = Prompter(load_tokenizer(path), self.variant, PRESETS[preset])
        self._mode = mode
        self._client = ServerClient(base_urls, concurrency, _TIMEOUT_S, _RETRIES)
        self._client.model = self._client.served_model()

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """As ``Scorer.score``; raises ``TransientError`` where the server is down."""
        groups = {str(number): queries_of(solution) for number, solution in enumerate(solutions)}
        scored = self._score(groups, on_done=on_done)
        return [scored[key] for key in groups]

    def score_until(
        self,
        solutions: Sequence[Solution],
        stop: Callable[[int, int, StepScore], bool],
        on_done: Callable[[int], None] | None = None,
    ) -> list[list[StepScore]]:
        """As ``Scorer.score_until``; every solution goes from wave to wave by itself."""
        groups = {str(number): queries_of(solution) for number, solution in enumerate(solutions)}
        scored = self._score(groups, lambda key, place, score: stop(int(key), place, score), on_done)
        return [scored[key] for key in groups]

    def rounds(self) -> ServedRounds:
        """A search's scorer of candidates; the server's cache holds the trunks."""
        return ServedRounds(self)

    def _score(
        self,
        groups: Mapping[str, list[Query]],
        stop: Callable[[str, int, StepScore], bool] | None = None,
        on_done: Callable[[int], None] | None = None,
    ) -> dict[str, list[StepScore]]:
        out: dict[str, list[StepScore]] = {}

        def take(key: str, result: list[StepScore] | Failure) -> None:
            if isinstance(result, Failure):
                name = groups[key][-1].name
                if result.outcome == "engine_error":
                    raise TransientError(f"{name}: {result.message}")
                raise DataError(f"{name}: the server refused its prompt ({result.message}); shorten or leave it out")
            out[key] = result
            if on_done is not None:
                on_done(1)

        ids = self._prompter.ids
        chains = (self._chain(key, queries, stop) for key, queries in groups.items())
        self._client.read(chains, (ids.good, ids.bad), take)
        return out

    def _chain(
        self, key: str, queries: list[Query], stop: Callable[[str, int, StepScore], bool] | None
    ) -> Chain[list[StepScore]]:
        """One group's steps: all at once, or in waves up to the one that ``stop`` holds for."""

        async def work(ask: Ask) -> list[StepScore]:
            out: list[StepScore] = []
            size = WAVE if stop is not None else len(queries)
            while len(out) < len(queries):
                for score in await self._wave(ask, queries[len(out) : len(out) + size]):
                    out.append(score)
                    if stop is not None and stop(key, len(out) - 1, score):
                        return out
                size *= 2
            return out

        return Chain(key, work)

    async def _wave(self, ask: Ask, queries: list[Query]) -> list[StepScore]:
        """All readings of some steps: pass by pass where a later pass is given the labels that the earlier one found.

        Step by step, each with its marks in order: a prompt finds in the cache what the one before left there.
        """
        prompter, mode = self._prompter, self._mode
        encoded, passes = prompter.encode(queries), passes_for(mode, prompter.passes)
        numbers = range(len(queries))
        found: dict[FoundAt, list[float]] = {}

        async def read(wanted: Sequence[FoundAt]) -> None:
            prompts = [prompter.prompt(*encoded[number], given, (mark,)).tolist() for number, given, mark in wanted]
            found.update(zip(wanted, await ask(prompts), strict=True))

        if mode in (Mode.BOTH, Mode.FIRST):
            predicted: list[tuple[bool, ...]] = [()] * len(queries)
            for step in passes:
                wanted = [(n, predicted[n][: len(step.given)], mark) for n in numbers for mark in step.asked]
                await read(wanted)
                for at in wanted:
                    predicted[at[0]] += (found[at][0] >= found[at][1],)
        else:
            labels = (True,) if mode is Mode.POSITIVE else (True, False)
            await read(
                [
                    (n, given, mark)
                    for n in numbers
                    for step in passes
                    for given in itertools.product(labels, repeat=len(step.given))
                    for mark in step.asked
                ]
            )
        return [step_score(prompter, query.name, number, found, mode) for number, query in enumerate(queries)]


class ServedRounds:
    """Rounds of a search over a server, whose prefix cache is the memory from one round to the next."""

    def __init__(self, scorer: ServedScorer) -> None:
        self._scorer = scorer

    def score(self, rounds: Mapping[str, Candidates]) -> dict[str, list[StepScore]]:
        """As ``Rounds.score``."""
        groups = {
            key: [Query(f"{key}, candidate {i}", c.problem, c.prefix, step) for i, step in enumerate(c.steps)]
            for key, c in rounds.items()
        }
        scored = self._scorer._score(groups)
        return {key: scored[key] for key in groups}


@contextmanager
def serve(folder: Path, settings: Score) -> Iterator[ServedScorer]:
    """The PRM in ``folder`` behind the server that the parameters name, or one that is started and ended with it."""
    with ExitStack() as stack:
        urls = [settings.base_url]
        if not settings.base_url:
            path = resolve(folder)
            longest = int(read_json(path / "config.json")["max_position_embeddings"])
            urls = stack.enter_context(vllm_servers(folder, folder.name, longest, settings.vllm, LOGS / folder.name))
        yield ServedScorer(folder, urls, settings.preset, settings.concurrency)
