"""Labelling a table of rated steps: who is asked, who is asked again, and what stands at the end.

Every step goes through at most ``1 + disagreement_rounds`` rounds of at most ``parse_attempts`` answers. An answer is
looked up by ``<prompt digest>:<attempt>``, attempts counted over all rounds, so steps with equal prompts share their
answers and nothing is paid for twice.

Source: paper section 3.3; ``run_inference.py`` and ``run_inference_mistral.py`` as they were meant (the published
loops lose the disagreements of the last round).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from stages.core.journal import Journal
from stages.core.judge import Judge
from stages.core.labels import HUMAN, MONTE_CARLO, Outcome, disagrees, given_scores
from stages.core.params import Label
from stages.core.parsing import Scores, parse_scores
from stages.core.progress import Progress
from stages.core.prompts import judge_prompt
from stages.core.tokens import neutralise


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the judge to one step; ``text`` is ``None`` where there is none, ``detail`` says why."""

    attempt: int
    round: int
    text: str | None
    outcome: Outcome
    scores: Scores | None
    detail: str = ""
    tokens: int = 0


@dataclass(slots=True)
class Verdict:
    """The label of one step, and the attempts (numbers of answers) that led to it."""

    outcome: Outcome
    scores: Scores | None = None
    attempts: list[int] = field(default_factory=list)


def choose(steps: pl.DataFrame, params: Label) -> list[Verdict | None]:
    """Per row its verdict without a judge, or ``None`` where the judge is to be asked.

    The choice among Monte-Carlo steps is the published one: one stream a source, "+" first, then "-", each in the
    order of the table.
    """
    verdicts: list[Verdict | None] = []
    open_rows: dict[tuple[str, int], list[int]] = {}
    for row, (source, rating) in enumerate(steps.select("source", "rating").iter_rows()):
        scores = given_scores(source, rating)
        if scores is not None:
            verdicts.append(Verdict("given", scores))
        elif rating is None:
            verdicts.append(Verdict("unrated"))
        else:
            verdicts.append(None)
            open_rows.setdefault((source, rating), []).append(row)
    limits = {(HUMAN, -1): params.prm800k_limit or len(steps)}
    limits |= {(source, rating): params.mistral_per_rating for source in MONTE_CARLO for rating in (1, -1)}
    streams = {source: random.Random(params.seed) for source in (HUMAN, *MONTE_CARLO)}
    for (source, rating), limit in limits.items():
        rows = open_rows.get((source, rating), [])
        if len(rows) > limit:
            for row in set(rows) - set(streams[source].sample(rows, limit)):
                verdicts[row] = Verdict("not_sampled")
    return verdicts


class Prompts:
    """The judge's prompts of the rows in question, built when they are needed; memory holds their digests alone."""

    def __init__(self, steps: pl.DataFrame, trajectories: pl.DataFrame, rows: Sequence[int], judge: Judge) -> None:
        self._specials = judge.specials
        asked = steps[list(rows)].select("trajectory_id", "step_index", "step") if rows else steps.clear()
        needed = trajectories.filter(pl.col("trajectory_id").is_in(asked["trajectory_id"].unique().implode()))
        self._trunks: dict[str, tuple[str, list[str]]] = {
            identity: (self._clean(problem), [self._clean(step) for step in trunk])
            for identity, problem, trunk in needed.select("trajectory_id", "problem", "steps").iter_rows()
        }
        self._asked: dict[int, tuple[str, int, str]] = dict(zip(rows, asked.iter_rows(), strict=True))
        self.digest_of: dict[int, str] = {}
        self._row_of: dict[str, int] = {}
        for row in rows:
            digest = hashlib.sha256(self.text(row).encode()).hexdigest()
            self.digest_of[row] = digest
            self._row_of.setdefault(digest, row)

    def _clean(self, text: str) -> str:
        return neutralise(text, self._specials)

    def text(self, row: int) -> str:
        """The judge's user turn for a row."""
        identity, index, step = self._asked[row]
        problem, trunk = self._trunks[identity]
        return judge_prompt(problem, trunk[:index], self._clean(step))

    def of_key(self, key: str) -> str:
        """The judge's user turn for a journal key."""
        return self.text(self._row_of[key.partition(":")[0]])

    def key(self, row: int, attempt: int) -> str:
        """The journal key of a row's answer number ``attempt``."""
        return f"{self.digest_of[row]}:{attempt}"


@dataclass(slots=True)
class Labelling:
    """The run over one table: ``run`` asks in waves; ``answers`` reads back what was said."""

    steps: pl.DataFrame
    prompts: Prompts
    judge: Judge
    journal: Journal
    params: Label
    verdicts: list[Verdict | None]
    failed: dict[str, str] = field(default_factory=dict)

    def run(self) -> list[Verdict]:
        """Ask until every row has its verdict; a wave asks each open row for one more answer."""
        ratings = list(self.steps.select("source", "rating").iter_rows())
        pending = {row: 0 for row, verdict in enumerate(self.verdicts) if verdict is None}
        started: dict[int, Verdict] = {row: Verdict("unparsed") for row in pending}
        wave = 0
        while pending:
            wave += 1
            keys = sorted({self.prompts.key(row, attempt) for row, attempt in pending.items()})
            with Progress(f"judge, wave {wave}", len(keys), "call") as progress:
                self.failed |= self.judge.ask(keys, self.prompts.of_key, self.journal, progress)
            pending = dict(self._next(pending, started, ratings))
        return [verdict if verdict is not None else started[row] for row, verdict in enumerate(self.verdicts)]

    def _next(
        self, pending: dict[int, int], started: dict[int, Verdict], ratings: list[tuple[str, int]]
    ) -> Iterator[tuple[int, int]]:
        for row, attempt in pending.items():
            answer, verdict = self.answer(row, attempt), started[row]
            verdict.attempts.append(attempt)
            verdict.outcome, verdict.scores = answer.outcome, answer.scores
            source, rating = ratings[row]
            contradicted = source == HUMAN and answer.scores is not None and disagrees(source, rating, answer.scores)
            if contradicted and answer.round < self.params.disagreement_rounds:
                yield row, (answer.round + 1) * self.params.parse_attempts
            elif answer.outcome == "unparsed" and (attempt + 1) % self.params.parse_attempts:
                yield row, attempt + 1

    def answer(self, row: int, attempt: int) -> Answer:
        """Answer number ``attempt`` to a row, read by the parser."""
        key, round_ = self.prompts.key(row, attempt), attempt // self.params.parse_attempts
        if key in self.failed:
            return Answer(attempt, round_, None, "engine_error", None, self.failed[key])
        said = self.journal[key]
        if "outcome" in said:
            return Answer(attempt, round_, None, said["outcome"], None, said["message"])
        scores = parse_scores(said["text"])
        if isinstance(scores, Scores):
            return Answer(attempt, round_, said["text"], "parsed", scores, tokens=said["tokens"])
        return Answer(attempt, round_, said["text"], "unparsed", None, scores, said["tokens"])
