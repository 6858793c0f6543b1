"""Labelling a table of rated steps: who is asked, who is asked again, and what stands at the end.

Every step goes through at most ``1 + disagreement_rounds`` rounds of at most ``parse_attempts`` answers. An answer is
looked up by ``<prompt digest>:<attempt>``, attempts counted over all rounds, so steps with equal prompts share their
answers and nothing is paid for twice. State is a few bytes a step: prompts are built from the tables when they are
sent, answers are read from the journal when they are needed.

Source: paper section 3.3; ``run_inference.py`` and ``run_inference_mistral.py`` as they were meant (the published
loops lose the disagreements of the last round), or with the preset "official" in their indentation and with their
regular expression.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from pathfinder.core.labels import HUMAN, MONTE_CARLO, Outcome, Scores, disagrees, given_scores
from pathfinder.core.params import Label
from pathfinder.core.prompts import judge_prompt
from pathfinder.engines.journal import Journal
from pathfinder.engines.metering import Meter
from pathfinder.judge.judge import Judge
from pathfinder.judge.parsing import official_scores, parse_scores
from pathfinder.models.tokens import neutralise

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_OPEN = -1  # no verdict yet
_CODE = {outcome: code for code, outcome in enumerate(OUTCOMES)}
_PUBLISHED_INDENT = {HUMAN: 16}  # spaces; 20 for the other sources (load_data.py, load_data_mistral.py)

CUT = "cut"
"""Why an answer that ran into the token limit has no scores."""


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
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The label of one step, and the attempts (numbers of answers) that led to it."""

    outcome: Outcome
    scores: Scores | None = None
    attempts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts of a step table, row by row: 12 bytes each.

    ``outcomes`` are places in ``OUTCOMES`` (int8, (rows,)), ``scores`` 0, 1 or -1 for none (int8, (rows, 3));
    bit k of ``asked`` says whether answer number k was used (uint64, (rows,)).
    """

    outcomes: npt.NDArray[np.int8]
    scores: npt.NDArray[np.int8]
    asked: npt.NDArray[np.uint64]

    @staticmethod
    def unknown(rows: int) -> Verdicts:
        """No verdict yet for any row."""
        return Verdicts(np.full(rows, _OPEN, np.int8), np.full((rows, 3), -1, np.int8), np.zeros(rows, np.uint64))

    def __len__(self) -> int:
        return len(self.outcomes)

    def __getitem__(self, row: int) -> Verdict | None:
        """One row's, or ``None`` where the judge is still to be asked."""
        if self.outcomes[row] == _OPEN:
            return None
        scores = None if self.scores[row, 0] < 0 else Scores(*(int(score) for score in self.scores[row]))
        return Verdict(OUTCOMES[self.outcomes[row]], scores, self.attempts(row))

    def attempts(self, row: int) -> tuple[int, ...]:
        """The numbers of the answers that were used, in their order."""
        bits = int(self.asked[row])
        return tuple(number for number in range(bits.bit_length()) if bits >> number & 1)

    def settle(self, rows: int | npt.NDArray[np.int64], outcome: Outcome, scores: Scores | None) -> None:
        """Give rows an outcome and its scores."""
        self.outcomes[rows] = _CODE[outcome]
        self.scores[rows] = (scores.math, scores.consistency, scores.optimality) if scores else -1

    def names(self) -> pl.Series:
        """The outcomes by name."""
        return pl.Series("outcome", np.array(OUTCOMES, dtype=object)[self.outcomes].tolist(), pl.String)


def choose(steps: pl.DataFrame, params: Label) -> Verdicts:
    """Per row its verdict without a judge; open where the judge is to be asked.

    The choice among Monte-Carlo steps is the published one: one stream a source, "+" first, then "-", each in the
    order of the table.
    """
    verdicts = Verdicts.unknown(len(steps))
    open_rows: dict[tuple[str, int], npt.NDArray[np.int64]] = {}
    groups = steps.select("source", "rating").with_row_index("row").group_by("source", "rating").agg("row")
    for source, rating, found in groups.iter_rows():
        rows = np.sort(np.asarray(found, dtype=np.int64))
        scores = given_scores(source, rating)
        if scores is not None:
            verdicts.settle(rows, "given", scores)
        elif rating is None:
            verdicts.settle(rows, "unrated", None)
        else:
            open_rows[source, rating] = rows
    limits = {(HUMAN, -1): params.prm800k_limit or len(steps)}
    limits |= {(source, rating): params.mistral_per_rating for source in MONTE_CARLO for rating in (1, -1)}
    streams = {source: random.Random(params.seed) for source in (HUMAN, *MONTE_CARLO)}
    for (source, rating), limit in limits.items():
        rows = open_rows.get((source, rating), np.empty(0, np.int64))
        if len(rows) > limit:
            taken = np.asarray(streams[source].sample(range(len(rows)), limit), dtype=np.int64)
            verdicts.settle(np.delete(rows, taken), "not_sampled", None)
    return verdicts


class Prompts:
    """The judge's prompts of the open rows, built when they are needed; memory holds their digests, 60 bytes a row.

    ``rows`` are the rows of the step table, ascending (int64); a row's position in it is its *place*.
    """

    def __init__(
        self, steps: pl.DataFrame, trajectories: pl.DataFrame, verdicts: Verdicts, specials: Sequence[str], preset: str
    ) -> None:
        self.rows: npt.NDArray[np.int64] = np.flatnonzero(verdicts.outcomes == _OPEN)
        self._specials, self._published = specials, preset == "official"
        asked = steps.select("trajectory_id", "source", "step_index", "step")[self.rows]
        places = trajectories.select("trajectory_id").with_row_index("trunk")
        self._asked = asked.join(places, on="trajectory_id", how="left", maintain_order="left")
        self._trajectories = trajectories.select("problem", "steps")
        self._digests = np.empty((len(self.rows), 32), np.uint8)
        for place in np.argsort(self._asked["trunk"].to_numpy(), kind="stable").tolist():
            digest = hashlib.sha256(self.text(place).encode()).digest()
            self._digests[place] = np.frombuffer(digest, np.uint8)
        heads = self._digests[:, :8].copy().view(">u8").ravel()
        self._order = np.argsort(heads, kind="stable")
        self._heads = heads[self._order]

    def __len__(self) -> int:
        return len(self.rows)

    def text(self, place: int) -> str:
        """The judge's user turn for a place."""
        _, source, index, step, trunk = self._asked.row(place)
        problem, steps = self._trajectories.row(trunk)
        indent = _PUBLISHED_INDENT.get(source, 20) if self._published else 0
        clean = [neutralise(text, self._specials) for text in (problem, *steps[:index], step)]
        return judge_prompt(clean[0], clean[1:-1], clean[-1], indent)

    def digest(self, place: int) -> str:
        """The prompt's sha256."""
        return str(self._digests[place].tobytes().hex())

    def key(self, place: int, attempt: int) -> str:
        """The journal key of a place's answer number ``attempt``."""
        return f"{self.digest(place)}:{attempt}"

    def place(self, key: str) -> int:
        """The first place whose prompt a journal key names."""
        digest = bytes.fromhex(key.partition(":")[0])
        at = int(np.searchsorted(self._heads, int.from_bytes(digest[:8])))
        while self._digests[self._order[at]].tobytes() != digest:
            at += 1
        return int(self._order[at])

    def of_key(self, key: str) -> str:
        """The judge's user turn for a journal key."""
        return self.text(self.place(key))


@dataclass(slots=True)
class Labelling:
    """The run over one table: ``run`` asks in waves; ``answer`` reads back what was said."""

    steps: pl.DataFrame
    prompts: Prompts
    judge: Judge
    journal: Journal
    params: Label
    verdicts: Verdicts
    meter: Meter = field(default_factory=Meter)
    failed: dict[str, str] = field(default_factory=dict)

    def run(self) -> Verdicts:
        """Ask until every row has its verdict; a wave asks each open row for one more answer.

        Raises ``BudgetSpentError`` where the budget ends before the work.
        """
        self.meter.read = self._read
        pending: list[tuple[int, int]] = [(place, 0) for place in range(len(self.prompts))]
        wave = 0
        while pending:
            wave += 1
            keys = sorted({self.prompts.key(place, attempt) for place, attempt in pending})
            with self.meter.wave(f"judge, wave {wave}", len(keys)):
                self.failed |= self.judge.ask(keys, self.prompts.of_key, self.journal, self.meter)
            pending = list(self._next(pending))
        return self.verdicts

    def _next(self, pending: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        attempts = self.params.parse_attempts
        for place, attempt in pending:
            answer, row = self.answer(place, attempt), int(self.prompts.rows[place])
            self.verdicts.asked[row] |= np.uint64(1 << attempt)
            self.verdicts.settle(row, answer.outcome, answer.scores)
            source, rating = self._rated(place)
            contradicted = source == HUMAN and answer.scores is not None and disagrees(source, rating, answer.scores)
            # The published Mistral script asks again what it could not read, in rounds; contradictions it drops.
            unread = self.params.preset == "official" and source != HUMAN and answer.outcome == "unparsed"
            if answer.outcome == "unparsed" and (attempt + 1) % attempts:
                yield place, attempt + 1
            elif (contradicted or unread) and answer.round < self.params.disagreement_rounds:
                yield place, (answer.round + 1) * attempts

    def _rated(self, place: int) -> tuple[str, int]:
        row = int(self.prompts.rows[place])
        return self.steps["source"][row], self.steps["rating"][row]

    def _read(self, key: str, said: dict[str, object]) -> tuple[bool | None, bool | None]:
        """For the live line: was it read, and does it agree with the rating?"""
        if "outcome" in said:
            return None, None
        scores, _ = read_scores(str(said["text"]), self.params.preset, said["finish"] == "length")
        if scores is None:
            return False, None
        return True, not disagrees(*self._rated(self.prompts.place(key)), scores)

    def answer(self, place: int, attempt: int) -> Answer:
        """Answer number ``attempt`` to a place, read by the parser."""
        key, round_ = self.prompts.key(place, attempt), attempt // self.params.parse_attempts
        if key in self.failed:
            return Answer(attempt, round_, None, "engine_error", None, self.failed[key])
        said = self.journal[key]
        if "outcome" in said:
            return Answer(attempt, round_, None, said["outcome"], None, said["message"])
        scores, detail = read_scores(said["text"], self.params.preset, said["finish"] == "length")
        outcome: Outcome = "unparsed" if scores is None else "parsed"
        paid = (said["tokens"], said.get("prompt_tokens", 0))
        return Answer(attempt, round_, said["text"], outcome, scores, detail, *paid)


def read_scores(text: str, preset: str, cut: bool) -> tuple[Scores | None, str]:
    """The scores of an answer and, where there are none or they are not what was said, why.

    An answer that the token limit ``cut`` may have been about to say otherwise than the block it holds: a draft, a
    quotation. Official reads it all the same; a digit 2-9 and a fraction are there what the published training set
    makes of them, which is 0 (``<->``).
    """
    if preset == "official":
        read = official_scores(text)
        if read is None:
            return None, "no_scores"
        binary = all(score in (0, 1) for score in read)
        return Scores(*(int(score == 1) for score in read)), "" if binary else "not_binary"
    if cut:
        return None, CUT
    scores = parse_scores(text)
    return (scores, "") if isinstance(scores, Scores) else (None, scores)
