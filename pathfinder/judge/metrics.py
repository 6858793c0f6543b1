"""The metrics of the stage label: the judge's answers, their price, and the records that have labels."""

from __future__ import annotations

from pydantic import Field

from pathfinder.core.metrics import Agreement, Counts, Figure, Stage, Whole


class Label(Stage):
    """Metrics of the stage label.

    ``answers`` counts each step separately, although steps with equal prompts share an answer, paid for once
    (``calls``, ``tokens``).
    ``agreement`` is by source and rating. The counts by outcome are counts of records (``outcomes``) and of answers.
    """

    calls: Whole | None = Field(None, title="calls")
    answers: Whole | None = Field(None, title="answers")
    prompt_tokens: Whole | None = Field(None, title="prompt tokens")
    tokens: Whole | None = Field(None, title="answer tokens")
    parsed_share: Figure = None
    not_binary: Whole = 0
    answer_outcomes: Counts = {}
    unparsed_reasons: Counts = {}
    outcomes: Counts = {}
    agreement: dict[str, Agreement] = {}
    engine: str = ""
    preset: str = ""
