"""The tables and figures of a labelling run: labels, answers, and agreement with the ratings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pathfinder.core.labels import CRITERIA, OUTCOMES, drop_reason, is_labelled
from pathfinder.core.metrics import Agreement
from pathfinder.core.records import ANSWERS, LABELS
from pathfinder.core.tables import table_writer
from pathfinder.judge.labelling import Labelling, Verdicts


def labels_of(steps: pl.DataFrame, verdicts: Verdicts) -> pl.DataFrame:
    """Make the label table (schema ``LABELS``) with one row per step, in the order of ``steps``."""
    scores = pl.DataFrame(verdicts.scores, schema=list(CRITERIA)).select(pl.all().replace(-1, None))
    outcomes, attempts = np.array(OUTCOMES)[verdicts.outcomes], np.bitwise_count(verdicts.asked)
    frame = scores.with_columns(id=steps["id"], outcome=outcomes, attempts=attempts)
    origin = pl.when(outcome="given").then(pl.lit("rating")).when(is_labelled()).then(pl.lit("judge"))
    complete = frame.with_columns(origin=origin.otherwise(pl.lit("none")))
    return complete.select(pl.col(name).cast(kind) for name, kind in LABELS.items())


def write_answers(path: Path, labelling: Labelling) -> dict[str, Any]:
    """Write every answer to every step (schema ``ANSWERS``); returns their counts and cost.

    Steps with equal prompts share an answer, which is paid for once.
    """
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    paid = Counter(calls=0, tokens=0, prompt_tokens=0)
    not_binary = 0
    prompts, verdicts = labelling.prompts, labelling.verdicts
    counted = np.zeros(len(prompts.rows), np.uint64)  # the bits of the paid answers, at a prompt's first place
    with table_writer(path, ANSWERS) as table:
        for place, row in enumerate(prompts.rows.tolist()):
            identity, first = labelling.steps["id"][row], prompts.place(prompts.key(place, 0))
            for attempt in verdicts.attempts(row):
                answer, bit = labelling.answer(place, attempt), np.uint64(1 << attempt)
                table.add(identity, attempt, answer.round, prompts.digest(place), answer.text, answer.outcome)
                outcomes[answer.outcome] += 1
                if answer.outcome == "unparsed":
                    reasons[answer.detail] += 1
                not_binary += answer.outcome == "parsed" and bool(answer.detail)
                if not counted[first] & bit:
                    counted[first] |= bit
                    paid.update(calls=1, tokens=answer.tokens, prompt_tokens=answer.prompt_tokens)
    total = outcomes.total()
    share = outcomes["parsed"] / total if total else None
    figures = {"answers": total, "parsed_share": share, "not_binary": not_binary}
    return figures | paid | {"answer_outcomes": outcomes, "unparsed_reasons": reasons}


def agreement(steps: pl.DataFrame, labels: pl.DataFrame) -> dict[str, Agreement]:
    """The number of judged steps, by source and rating, and the share whose scores agree with the rating."""
    rows = pl.concat([steps.select("source", "rating"), labels.drop("id")], how="horizontal")
    judged = rows.filter(pl.col("outcome") == "parsed").with_columns(agrees=drop_reason().is_null())
    counts = judged.group_by("source", "rating").agg(pl.len(), pl.col("agrees").sum()).sort("source", "rating")
    return {
        f"{source}:{rating:+d}": Agreement(judged=count, share=agreed / count)
        for source, rating, count, agreed in counts.iter_rows()
    }
