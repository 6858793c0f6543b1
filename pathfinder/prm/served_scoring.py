"""PathFinder-PRM behind a server: the scores of ``pathfinder.prm.scoring``, from one-token completions of vLLM.

Each mark of a step is one request: the prompt up to the label as token ids, answered by the log-probabilities of
``<+>`` and ``<->`` as the next token. The server's prefix cache replaces the trees; prompts, passes and rules are the
same code. This module reads only the PRM's tokenizer and ``pathfinder.json``, no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from ground.io import DataError, TransientError
from pathfinder.core.steps import Candidates, RoundScorer, Solution, StepScore
from pathfinder.engines.openai_client import Ask, connect
from pathfinder.engines.sampling import Failure
from pathfinder.models.folders import OpenedModel
from pathfinder.prm.steps import (
    WAVE,
    Stop,
    candidate_queries,
    open_prompter,
    queries_of,
    refuse_other_tokens,
    step_score,
)
from pathfinder.tree.passes import Mode, Place, Query, passes_for


class ServedScorer:
    """A PRM that the equal servers ``base_urls`` offer; ``model`` has its tokenizer and variant.

    ``concurrency`` is the number of solutions per server at a time. Raises ``DataError`` if a server does not offer
    exactly one model.
    """

    def __init__(
        self,
        model: OpenedModel,
        base_urls: Sequence[str],
        preset: str = "default",
        concurrency: int = 32,
        mode: Mode = Mode.BOTH,
    ) -> None:
        self._prompter, self._mode, self.known = open_prompter(model, preset), mode, model.known
        self._client = connect(base_urls, concurrency, timeout_s=600.0, retries=8)

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None, stop: Stop | None = None
    ) -> list[list[StepScore]]:
        """Like ``Scorer.score``, but every solution advances through the waves independently.

        Raises ``DataError`` if the server refuses a prompt, or as ``refuse_other_tokens`` does, and ``TransientError``
        if it is down.
        """
        groups = {str(number): queries_of(solution) for number, solution in enumerate(solutions)}
        out = [scores or [] for scores in self._score(groups, on_done, stop).values()]
        refuse_other_tokens(self._prompter, solutions, out)
        return out

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search; the server's prefix cache holds the trunks."""
        return self._score_candidates

    def _score_candidates(self, rounds: Mapping[str, Candidates]) -> dict[str, Sequence[StepScore | None]]:
        """Scores of every candidate. A problem's candidates share a call, unless one is too long for the server."""
        groups = candidate_queries(rounds)
        found = self._score(groups)
        alone = {f"{key}/{i}": [query] for key in groups if found[key] is None for i, query in enumerate(groups[key])}
        one = {name: scores[0] if scores else None for name, scores in self._score(alone).items()}
        return {
            key: [one[f"{key}/{i}"] for i in range(len(groups[key]))] if scores is None else scores
            for key, scores in found.items()
        }

    def _score(
        self, groups: Mapping[str, list[Query]], on_done: Callable[[int], None] | None = None, stop: Stop | None = None
    ) -> dict[str, list[StepScore] | None]:
        """Scores of every group's queries, in the order of the groups; with ``stop``, keys are solutions' numbers.

        The result is None for a group with a prompt longer than the server's context.
        """
        out: dict[str, list[StepScore] | None] = {}

        def take(key: str, result: list[StepScore] | Failure) -> None:
            if isinstance(result, Failure) and result.outcome == "too_long":
                out[key] = None
            elif isinstance(result, Failure):
                name = groups[key][-1].name
                if result.outcome == "engine_error":
                    raise TransientError(f"{name}: {result.message}")
                raise DataError(f"{name}: the server refused its prompt ({result.message}); shorten or leave it out")
            else:
                out[key] = result
            if on_done is not None:
                on_done(1)

        async def waves(key: str, ask: Ask) -> list[StepScore]:
            queries, scores = groups[key], list[StepScore]()
            size = WAVE if stop is not None else len(queries)
            while len(scores) < len(queries):
                for score in await self._wave(ask, queries[len(scores) : len(scores) + size]):
                    scores.append(score)
                    if stop is not None and stop(int(key), score):
                        return scores
                size *= 2
            return scores

        ids = self._prompter.ids
        self._client.read(groups, waves, (ids.good, ids.bad), take)
        return {key: out[key] for key in groups}

    async def _wave(self, ask: Ask, queries: list[Query]) -> list[StepScore]:
        """All places of some steps, pass by pass if a later pass depends on the labels that an earlier one predicts.

        Readings are ordered by step and mark, so that each prompt finds the one before it in the prefix cache.
        """
        prompter, mode = self._prompter, self._mode
        encoded, passes = prompter.encode(queries), passes_for(mode, prompter.passes)
        labels = {Mode.POSITIVE: (True,), Mode.ALL: (True, False)}.get(mode)
        predicted: list[tuple[bool, ...]] = [()] * len(queries)
        found: dict[Place, list[float]] = {}
        for together in [passes] if labels else [[step] for step in passes]:
            wanted = [
                Place(number, given, mark)
                for number, known in enumerate(predicted)
                for step in together
                for given in (product(labels, repeat=len(step.given)) if labels else [known[: len(step.given)]])
                for mark in step.asked
            ]
            prompts = [prompter.prompt(*encoded[r.query], r.given, (r.mark,)).tolist() for r in wanted]
            found |= zip(wanted, await ask(prompts), strict=True)
            for place in wanted:
                good, bad, _ = found[place]
                predicted[place.query] += (good >= bad,)
        return [step_score(prompter, number, found, mode) for number in range(len(queries))]
