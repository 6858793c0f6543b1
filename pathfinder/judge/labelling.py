"""Label a table of rated steps: the steps that the judge sees, the repeated questions, and the verdicts.

A step takes at most ``1 + disagreement_rounds`` rounds of at most ``parse_attempts`` answers. The key of an answer is
``<prompt digest>:<attempt>``, with attempts counted over all rounds, so steps with equal prompts share their answers.
State takes a few bytes per step: prompts are built when they are sent, answers are read from the journal when needed.

Other machines can answer a part of the prompts, each part into a separate journal. A prompt belongs to a part by its
digest, so all its answers are in one journal. The stage moves the answers of all parts to its own journal before it
asks. Only servers answer parts: in process, an answer depends on the rest of its batch.

Source: paper section 3.3; ``run_inference.py`` and ``run_inference_mistral.py`` as intended (the published loops lose
the disagreements of the last round). The preset "official" uses their indentation and regular expression.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ground.io import DataError, read_jsonl
from pathfinder.core.labels import CRITERIA, HUMAN, MONTE_CARLO, OUTCOMES, Outcome, Scores, disagrees, given_scores
from pathfinder.core.params import Label, Preset
from pathfinder.core.parts import Part
from pathfinder.engines.journal import Journal
from pathfinder.engines.metering import Meter
from pathfinder.judge.judge import Judge
from pathfinder.judge.parsing import read_scores
from pathfinder.judge.prompts import step_prompt

_OPEN = -1  # no verdict yet
_JOURNAL = "journal.jsonl"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the judge to a step; ``text`` and ``scores`` are ``None`` if missing, for the reason ``detail``."""

    round: int
    text: str | None
    outcome: Outcome
    scores: Scores | None
    detail: str = ""
    tokens: int = 0
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts on the rows of a step table, a dozen bytes per row.

    ``outcomes`` (int8, (rows,)) are indices into ``OUTCOMES``, -1 while the judge has to be asked. ``scores`` (int8,
    (rows, criteria)) are 0, 1, or -1 for none. Bit k of ``asked`` (uint64, (rows,)) is set if answer k was used.
    """

    outcomes: npt.NDArray[np.int8]
    scores: npt.NDArray[np.int8]
    asked: npt.NDArray[np.uint64]

    @staticmethod
    def unknown(rows: int) -> Verdicts:
        """Verdicts without any known outcome."""
        scores = np.full((rows, len(CRITERIA)), -1, np.int8)
        return Verdicts(np.full(rows, _OPEN, np.int8), scores, np.zeros(rows, np.uint64))

    def attempts(self, row: int) -> tuple[int, ...]:
        """The numbers of the answers used for a row, ascending."""
        bits = int(self.asked[row])
        return tuple(number for number in range(bits.bit_length()) if bits >> number & 1)

    def settle(self, rows: int | npt.NDArray[np.int64], outcome: Outcome, scores: Scores | None) -> None:
        """Set the outcome and scores of one row, or of several (int64, (n,))."""
        self.outcomes[rows] = OUTCOMES.index(outcome)
        self.scores[rows] = -1 if scores is None else scores


def choose(steps: pl.DataFrame, params: Label) -> Verdicts:
    """Settle the rows that need no judge: decided by their rating, unrated, or not in the sample.

    Monte-Carlo steps are sampled as in the published code: one random stream per source, first "+", then "-", each in
    the order of the table.
    """
    verdicts = Verdicts.unknown(len(steps))
    streams = {source: random.Random(params.seed) for source in (HUMAN, *MONTE_CARLO)}
    groups = steps.select("source", "rating").with_row_index("row").group_by("source", "rating").agg("row")
    for source, rating, numbers in groups.sort("rating", descending=True).iter_rows():
        rows = np.asarray(numbers, dtype=np.int64)
        limit = (params.prm800k_limit or len(steps)) if source == HUMAN else params.mistral_per_rating
        if (scores := given_scores(source, rating)) is not None:
            verdicts.settle(rows, "given", scores)
        elif rating is None:
            verdicts.settle(rows, "unrated", None)
        elif len(rows) > limit:
            sample = streams[source].sample(range(len(rows)), limit)
            verdicts.settle(np.delete(rows, sample), "not_sampled", None)
    return verdicts


class Prompts:
    """The judge's prompts for the open rows, built on demand; memory holds only digests, about 60 bytes per row.

    ``rows`` (int64, ascending) are rows of the step table; the index of a row in ``rows`` is its *place*.
    """

    def __init__(
        self, steps: pl.DataFrame, trajectories: pl.DataFrame, verdicts: Verdicts, judge: Judge, preset: Preset
    ) -> None:
        self.rows: npt.NDArray[np.int64] = np.flatnonzero(verdicts.outcomes == _OPEN)
        self._specials, self._preset = judge.specials, preset
        asked = steps.select("trajectory_id", "source", "step_index", "step")[self.rows]
        places = trajectories.select("trajectory_id").with_row_index("trunk")
        self._asked = asked.join(places, on="trajectory_id", how="left", maintain_order="left")
        self._trajectories = trajectories.select("problem", "steps")
        self._digests = np.empty(len(self.rows), "S32")
        for place in np.argsort(self._asked["trunk"].to_numpy(), kind="stable").tolist():
            self._digests[place] = hashlib.sha256(self.text(place).encode()).digest()
        self._order = np.argsort(self._digests, kind="stable")

    def text(self, place: int) -> str:
        """The prompt at a place."""
        _, source, index, step, trunk = self._asked.row(place)
        problem, steps = self._trajectories.row(trunk)
        return step_prompt(source, problem, steps[:index], step, self._specials, self._preset)

    def digest(self, place: int) -> str:
        """The sha256 of the prompt at a place."""
        return bytes(self._digests[place]).ljust(32, b"\0").hex()  # numpy strips zero bytes at the end

    def number(self, place: int) -> int:
        """A number that equal prompts share, from their digest."""
        return int(self.digest(place)[:8], 16)

    def key(self, place: int, attempt: int) -> str:
        """The journal key of answer number ``attempt`` to the prompt at a place."""
        return f"{self.digest(place)}:{attempt}"

    def place(self, key: str) -> int:
        """The first place whose prompt belongs to a journal key."""
        digest = np.bytes_(bytes.fromhex(key.partition(":")[0]))
        return int(self._order[np.searchsorted(self._digests, digest, sorter=self._order)])

    def of_key(self, key: str) -> str:
        """The prompt of a journal key."""
        return self.text(self.place(key))


@dataclass(slots=True)
class Labelling:
    """One run over a table: ``run`` asks in waves, ``answer`` reads an answer from the journal."""

    steps: pl.DataFrame
    prompts: Prompts
    judge: Judge
    journal: Journal
    params: Label
    verdicts: Verdicts
    meter: Meter
    failed: dict[str, str] = field(default_factory=dict)

    def run(self, part: Part | None = None) -> None:
        """Ask until every row has a verdict, or every row of a part; each wave asks for one more answer per open row.

        Raises ``BudgetSpentError`` if the budget is spent before that.
        """
        self.meter.read = self._read
        places = range(len(self.prompts.rows))
        pending = [(place, 0) for place in places if part is None or part.has(self.prompts.number(place))]
        self._count_earlier(pending)
        for wave in count(1):
            if not pending:
                return
            keys = sorted({self.prompts.key(place, attempt) for place, attempt in pending})
            with self.meter.wave(f"judge, wave {wave}", len(keys)):
                self.failed |= self.judge.ask(keys, self.prompts.of_key, self.journal, self.meter)
            pending = list(self._next(pending))

    def _count_earlier(self, pending: Sequence[tuple[int, int]]) -> None:
        """Count the answers of earlier runs, in all waves, before this run pays for an answer."""
        while pending:
            pending = [
                (place, attempt) for place, attempt in pending if self.prompts.key(place, attempt) in self.journal
            ]
            for key in {self.prompts.key(place, attempt) for place, attempt in pending}:
                self.meter.count(key, self.journal[key])
            pending = list(self._next(pending))

    def _next(self, pending: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        attempts = self.params.parse_attempts
        for place, attempt in pending:
            answer, row = self.answer(place, attempt), int(self.prompts.rows[place])
            self.verdicts.asked[row] |= np.uint64(1 << attempt)
            self.verdicts.settle(row, answer.outcome, answer.scores)
            source, rating = self._rated(place)
            contradicted = source == HUMAN and answer.scores is not None and disagrees(source, rating, answer.scores)
            # The published Mistral script asks again in rounds only if it could not parse; it drops contradictions.
            unread = self.params.preset == "official" and source != HUMAN and answer.outcome == "unparsed"
            if answer.outcome == "unparsed" and (attempt + 1) % attempts:
                yield place, attempt + 1
            elif (contradicted or unread) and answer.round < self.params.disagreement_rounds:
                yield place, (answer.round + 1) * attempts

    def _rated(self, place: int) -> tuple[str, int]:
        row = int(self.prompts.rows[place])
        return self.steps["source"][row], self.steps["rating"][row]

    def _read(self, key: str, entry: dict[str, Any]) -> dict[str, bool]:
        """For the progress line: is the answer parsed, and does it agree with the rating?"""
        if "outcome" in entry:
            return {}
        scores, _ = read_scores(entry["text"], self.params.preset, entry["finish"] == "length")
        if scores is None:
            return {"parsed": False}
        return {"parsed": True, "agrees": not disagrees(*self._rated(self.prompts.place(key)), scores)}

    def answer(self, place: int, attempt: int) -> Answer:
        """Read and parse answer number ``attempt`` to the prompt at a place."""
        key, round_ = self.prompts.key(place, attempt), attempt // self.params.parse_attempts
        failure = self.failed.get(key)
        entry: dict[str, Any] = {"outcome": "engine_error", "message": failure} if failure else self.journal[key]
        if "outcome" in entry:
            return Answer(round_, None, entry["outcome"], None, entry["message"])
        scores, detail = read_scores(entry["text"], self.params.preset, entry["finish"] == "length")
        outcome: Outcome = "unparsed" if scores is None else "parsed"
        tokens, prompt_tokens = entry["tokens"] or 0, entry.get("prompt_tokens") or 0
        return Answer(round_, entry["text"], outcome, scores, detail, tokens, prompt_tokens)


def journal_path(folder: Path, part: Part | None) -> Path:
    """The journal of the stage in ``folder``, or a part's journal, in a folder next to it that names the part."""
    return (folder if part is None else folder.with_name(f"{folder.name}-{part}")) / _JOURNAL


def require_servers(params: Label) -> None:
    """Raise ``DataError`` if the engine's answers depend on each other."""
    if params.engine == "transformers":
        raise DataError(
            "label.engine transformers: its answers depend on their batch, so it cannot answer a part; use the engine "
            "vllm or openai, or run the stage without --part"
        )


def move_parts(journal: Journal) -> int:
    """Move the answers of all parts that are not in ``journal``, part by part by name; returns their number.

    Raises ``DataError`` if a part's journal is damaged or its process still runs.
    """
    before, folder = len(journal), journal.path.parent
    parts = sorted(folder.parent.glob(f"{folder.name}-*-of-*/{_JOURNAL}"))
    for path in parts:
        with Journal(path):  # verifies every line, and excludes a writer
            for _, line in read_jsonl(path):
                if line["key"] not in journal:
                    journal.write(line["key"], line["value"])
    journal.sync()
    for path in parts:
        shutil.rmtree(path.parent)
    if added := len(journal) - before:
        print(f"label: {added} answers of {len(parts)} parts moved to {journal.path}", file=sys.stderr, flush=True)
    return added
