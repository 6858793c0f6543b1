"""PathFinder-PRM behind a server: the scores of ``pathfinder.prm.scoring``, from one-token completions of vLLM.

Each mark of a step is one request: the prompt up to the label as token ids, answered by the log-probabilities of
``<+>`` and ``<->`` as the next token. The server's prefix cache takes the place of the trees; prompts, passes and rules
are the same code. Only the PRM's tokenizer and ``pathfinder.json`` are read here, no weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pathfinder.core.io import DataError, TransientError
from pathfinder.engines.openai_client import Ask, Chain, connect
from pathfinder.engines.sampling import Failure
from pathfinder.prm.readings import WAVE, FoundAt, candidate_queries, open_prompter, queries_of, step_score
from pathfinder.prm.steps import RoundScorer, Solution, StepScore
from pathfinder.tree.passes import Mode, Query, passes_for

_TIMEOUT_S = 600.0
_RETRIES = 8


class ServedScorer:
    """A PRM that the equal servers ``base_urls`` offer; ``folder`` holds its tokenizer and ``pathfinder.json``.

    ``concurrency`` is the number of solutions per server at a time. Raises ``DataError`` if a server does not offer
    exactly one model.
    """

    def __init__(
        self,
        folder: Path,
        base_urls: Sequence[str],
        preset: str = "default",
        concurrency: int = 32,
        mode: Mode = Mode.BOTH,
    ) -> None:
        self._prompter, self._mode = open_prompter(folder, preset), mode
        self._client = connect(base_urls, concurrency, _TIMEOUT_S, _RETRIES)

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """Like ``Scorer.score``; raises ``TransientError`` if the server is down."""
        groups = {str(number): queries_of(solution) for number, solution in enumerate(solutions)}
        return list(self._score(groups, on_done=on_done).values())

    def score_until(
        self,
        solutions: Sequence[Solution],
        stop: Callable[[int, int, StepScore], bool],
        on_done: Callable[[int], None] | None = None,
    ) -> list[list[StepScore]]:
        """Like ``Scorer.score_until``; every solution advances from wave to wave by itself."""
        groups = {str(number): queries_of(solution) for number, solution in enumerate(solutions)}
        return list(self._score(groups, lambda key, place, score: stop(int(key), place, score), on_done).values())

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search; the server's prefix cache holds the trunks."""
        return lambda rounds: self._score(candidate_queries(rounds))

    def _score(
        self,
        groups: Mapping[str, list[Query]],
        stop: Callable[[str, int, StepScore], bool] | None = None,
        on_done: Callable[[int], None] | None = None,
    ) -> dict[str, list[StepScore]]:
        """Scores of every group's queries, in the order of the groups."""
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
        return {key: out[key] for key in groups}

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
        """All readings of some steps, pass by pass if a later pass depends on the labels that an earlier one predicts.

        Readings are ordered by step and mark, so that each prompt finds the one before it in the prefix cache.
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
